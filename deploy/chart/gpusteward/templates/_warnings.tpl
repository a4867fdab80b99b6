{{/* What is missing in the cluster. Without a cluster (`helm template`) nothing is looked up. */}}
{{- define "gpusteward.warnings" -}}
{{- $hasOperator := .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" -}}
{{- if and (not $hasOperator) (eq (.Values.serviceMonitor.enabled | toString) "auto") (not .Values.scrapeAnnotations.enabled) }}

WARNING: the Prometheus Operator is not installed (no ServiceMonitor CRD), so Prometheus does not scrape the agents yet.
  Set scrapeAnnotations.enabled=true, or add a scrape job with honor_labels: true (docs/how-to/helm.md).
{{- end }}
{{- if include "gpusteward.hasMonitors" . }}
{{- include "gpusteward.selectorWarnings" . }}
{{- end }}
{{- if .Values.agent.enabled }}
{{- include "gpusteward.nodeWarning" . }}
{{- include "gpusteward.podSecurityWarning" . }}
{{- include "gpusteward.profilingWarnings" . }}
{{- end }}
{{- include "gpusteward.runtimeClassWarnings" . }}
{{- end }}

{{/* A Prometheus selects ServiceMonitors by labels; kube-prometheus-stack by `release`. */}}
{{- define "gpusteward.selectorWarnings" -}}
{{- $labels := merge dict .Values.serviceMonitor.additionalLabels .Values.commonLabels -}}
{{- $field := .Values.podMonitor.enabled | ternary "podMonitorSelector" "serviceMonitorSelector" -}}
{{- range (lookup "monitoring.coreos.com/v1" "Prometheus" "" "").items }}
{{- $prometheus := . }}
{{- range $key, $value := (default dict (get .spec $field)).matchLabels }}
{{- if ne $value (get $labels $key) }}

WARNING: Prometheus {{ $prometheus.metadata.namespace }}/{{ $prometheus.metadata.name }} selects monitors with the label {{ $key }}={{ $value }}; those of this release do not have it.
  Set serviceMonitor.additionalLabels.{{ $key }}={{ $value }}.
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpusteward.nodeWarning" -}}
{{- $nodes := (lookup "v1" "Node" "" "").items -}}
{{- $selector := .Values.agent.nodeSelector -}}
{{- $found := 0 -}}
{{- range $nodes }}
{{- $labels := default dict .metadata.labels }}
{{- $matches := true }}
{{- range $key, $value := $selector }}{{ if ne $value (get $labels $key) }}{{ $matches = false }}{{ end }}{{ end }}
{{- if $matches }}{{ $found = add1 $found }}{{ end }}
{{- end }}
{{- if and $nodes (not $found) }}

WARNING: no node has the label{{ range $key, $value := $selector }} {{ $key }}={{ $value }}{{ end }}, so no agent will run.
  gpu-feature-discovery (GPU operator) sets it. Elsewhere label your GPU nodes, or set agent.nodeSelector to a label they have.
{{- end }}
{{- end }}

{{/* The API server refuses pods of a RuntimeClass that does not exist; a DaemonSet only says so in its events. */}}
{{- define "gpusteward.runtimeClassWarnings" -}}
{{- $root := . -}}
{{- range $component := list "agent" "analyzer" }}
{{- $values := get $root.Values $component }}
{{- $name := $values.runtimeClassName }}
{{- if and $values.enabled $name (lookup "v1" "Node" "" "").items (not (lookup "node.k8s.io/v1" "RuntimeClass" "" $name)) }}

WARNING: the RuntimeClass {{ $name }} does not exist, so no pod of the {{ $component }} will be created.
  The GPU operator makes `nvidia`. Elsewhere create it, or leave {{ $component }}.runtimeClassName empty where the NVIDIA runtime is the default.
{{- end }}
{{- end }}
{{- end }}

{{/* One process of a node can profile, and dcgm-exporter does with an engine of its own. */}}
{{- define "gpusteward.profilingWarnings" -}}
{{- if eq .Values.agent.profiling.hostengine "sidecar" }}
{{- range (lookup "apps/v1" "DaemonSet" "" "").items }}
{{- $labels := merge dict (default dict .spec.selector.matchLabels) (default dict .metadata.labels) }}
{{- if or (eq (get $labels "app.kubernetes.io/name") "dcgm-exporter") (eq (get $labels "app") "nvidia-dcgm-exporter") }}

WARNING: the dcgm-exporter {{ .metadata.namespace }}/{{ .metadata.name }} profiles GPUs, too, and only one process of a node can: the other one has no DCGM_FI_PROF_*.
  Remove it, or DCGM_FI_PROF_* from its fields; or let both use the GPU operator's hostengine: agent.profiling.hostengine=gpu-operator (docs/how-to/dcgm.md).
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpusteward.podSecurityWarning" -}}
{{- $namespace := include "gpusteward.namespace" . -}}
{{- $labels := default dict (dig "metadata" "labels" dict (lookup "v1" "Namespace" "" $namespace)) -}}
{{- $level := get $labels "pod-security.kubernetes.io/enforce" -}}
{{- if has $level (list "baseline" "restricted") }}

WARNING: the namespace enforces the Pod Security level {{ $level }}, which refuses the agents (hostPID, hostPath).
  kubectl label --overwrite namespace {{ $namespace }} pod-security.kubernetes.io/enforce=privileged
{{- end }}
{{- end }}
