{{/* What the API server, the Prometheus Operator or a kubelet would refuse: one line each, before anything is changed. */}}
{{- define "gpusteward.refusedErrors" -}}
{{- include "gpusteward.nameErrors" . }}
{{- range $component := list "agent" "analyzer" }}
{{- if (get $.Values $component).enabled }}
{{- include "gpusteward.podErrors" (list $ $component) }}
{{- end }}
{{- end }}
{{- include "gpusteward.updateErrors" . }}
{{- include "gpusteward.monitorErrors" . }}
{{- include "gpusteward.hostErrors" . }}
{{- with .Values.agent.service }}
{{- if and .enabled (eq .clusterIP "None") (ne .type "ClusterIP") }}
- agent.service.clusterIP: a Service of type {{ .type }} cannot be headless. Set clusterIP to "".
{{- end }}
{{- if and .enabled (eq .clusterIP "None") (eq .internalTrafficPolicy "Local") }}
- agent.service.internalTrafficPolicy: clients of a headless Service choose a pod themselves. Set agent.service.clusterIP to "".
{{- end }}
{{- end }}
{{- with .Values.analyzer }}
{{- $minimum := .podDisruptionBudget.minAvailable | toString }}
{{- if not (regexMatch "^[0-9]+%?$" $minimum) }}
- analyzer.podDisruptionBudget.minAvailable: write a number of pods or a share of them.
{{- else if and .podDisruptionBudget.enabled (gt (int .replicas) 1) (or (eq $minimum "100%") (and (not (hasSuffix "%" $minimum)) (ge (int $minimum) (int .replicas)))) }}
- analyzer.podDisruptionBudget.minAvailable: {{ $minimum }} of {{ .replicas }} replicas would block every drain of their nodes. Use less.
{{- end }}
{{- end }}
{{- end }}

{{- define "gpusteward.nameErrors" -}}
{{- $name := include "gpusteward.fullname" . }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
- fullnameOverride: {{ $name | quote }} is no name of a Service. Use small letters, digits and hyphens, a letter first.
{{- end }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" (include "gpusteward.namespace" .)) }}
- namespaceOverride: {{ include "gpusteward.namespace" . | quote }} is no name of a namespace.
{{- end }}
{{- if not (regexMatch "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$" (include "gpusteward.name" .)) }}
- nameOverride: {{ include "gpusteward.name" . | quote }} cannot be the value of a label.
{{- end }}
{{- end }}

{{/* Of the pods of a component: (list $ "agent"). */}}
{{- define "gpusteward.podErrors" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := get $root.Values $component -}}
{{- $own := include "gpusteward.labels" (list (merge (dict "Values" (omit $root.Values "commonLabels")) $root) $component) | fromYaml }}
{{- range $path, $labels := dict "commonLabels" $root.Values.commonLabels (printf "%s.podLabels" $component) $values.podLabels (printf "%s.service.labels" $component) $values.service.labels }}
{{- range $key, $_ := $labels }}
{{- if hasKey $own $key }}
- {{ $path }}: the label {{ $key }} belongs to the chart, whose selectors need it. Use another one.
{{- end }}
{{- end }}
{{- end }}
{{- range $each := $values.tolerations }}
{{- if and (eq (default "Equal" $each.operator) "Exists") $each.value }}
- {{ $component }}.tolerations: operator Exists has no value, but {{ $each.value | quote }} is given. Use operator Equal.
{{- end }}
{{- if and (not $each.key) (ne (default "Equal" $each.operator) "Exists") }}
- {{ $component }}.tolerations: a toleration without key tolerates every taint, and needs operator Exists.
{{- end }}
{{- if and (hasKey $each "tolerationSeconds") (ne (default "" $each.effect) "NoExecute") }}
- {{ $component }}.tolerations: tolerationSeconds needs effect NoExecute.
{{- end }}
{{- end }}
{{- range $path, $context := dict "securityContext" $values.securityContext "profiling.securityContext" (default dict $values.profiling).securityContext }}
{{- $context = default dict $context }}
{{- if and $context.privileged (eq (toString $context.allowPrivilegeEscalation) "false") }}
- {{ $component }}.{{ $path }}.privileged: a privileged container can always gain privileges. Set allowPrivilegeEscalation to true, or leave privileged out.
{{- end }}
{{- if and $context.runAsNonRoot (eq (toString $context.runAsUser) "0") }}
- {{ $component }}.{{ $path }}.runAsNonRoot: runAsUser is 0, which is root. Set runAsUser, too.
{{- end }}
{{- end }}
{{- range $path, $resources := dict "resources" $values.resources "profiling.resources" (default dict $values.profiling).resources }}
{{- range $name, $limit := (default dict $resources).limits }}
{{- $request := get (default dict $resources.requests) $name }}
{{- if and $request $limit (gt (include "gpusteward.quantity" $request | float64) (include "gpusteward.quantity" $limit | float64)) }}
- {{ $component }}.{{ $path }}.limits.{{ $name }}: {{ $limit }} is below the request of {{ $request }}. Lower {{ $component }}.{{ $path }}.requests.{{ $name }}, too.
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* `48Mi` in bytes, `10m` in cores. */}}
{{- define "gpusteward.quantity" -}}
{{- $number := regexFind "^[0-9.]+" (toString .) | float64 -}}
{{- $unit := regexFind "[A-Za-z]*$" (toString .) -}}
{{- $factors := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf $number (default 1 (get $factors $unit)) -}}
{{- end }}

{{- define "gpusteward.updateErrors" -}}
{{- with .Values.agent }}
{{- $update := .updateStrategy.rollingUpdate }}
{{- range $key := list "maxUnavailable" "maxSurge" }}
{{- if not (regexMatch "^([0-9]+|[0-9]{1,2}%|100%)$" (get $update $key | toString)) }}
- agent.updateStrategy.rollingUpdate.{{ $key }}: write a number of nodes or a share of them, such as 10%.
{{- end }}
{{- end }}
{{- $isStopping := not (regexMatch "^0+%?$" ($update.maxUnavailable | toString)) }}
{{- $isAdding := not (regexMatch "^0+%?$" ($update.maxSurge | toString)) }}
{{- if and $isStopping $isAdding }}
- agent.updateStrategy.rollingUpdate.maxSurge: with it maxUnavailable must be 0.
{{- else if not (or $isStopping $isAdding) }}
- agent.updateStrategy.rollingUpdate.maxUnavailable: with 0 and maxSurge 0 no agent could be replaced. Set one of them.
{{- end }}
{{- if and $isAdding .hostNetwork }}
- agent.updateStrategy.rollingUpdate.maxSurge: with agent.hostNetwork two agents of a node cannot have one port. Use maxUnavailable.
{{- end }}
{{- if and $isAdding (eq .profiling.hostengine "sidecar") }}
- agent.updateStrategy.rollingUpdate.maxSurge: with agent.profiling.hostengine sidecar two hostengines of a node would compete for profiling. Use maxUnavailable.
{{- end }}
{{- end }}
{{- end }}

{{- define "gpusteward.monitorErrors" -}}
{{- with .Values.serviceMonitor }}
{{- $seconds := dict }}
{{- range $key := list "interval" "scrapeTimeout" }}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" (get $.Values.serviceMonitor $key) -1 }}
{{- $factor := get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) (regexFind "[a-z]+$" .) }}
{{- $sum = addf $sum (mulf (regexFind "^[0-9]+" . | float64) $factor) }}
{{- end }}
{{- $_ := set $seconds $key $sum }}
{{- end }}
{{- if gt $seconds.scrapeTimeout $seconds.interval }}
- serviceMonitor.scrapeTimeout: {{ .scrapeTimeout }} is longer than the interval of {{ .interval }}, which the Prometheus Operator rejects.
{{- end }}
{{- if and .targetLabels $.Values.podMonitor.enabled }}
- serviceMonitor.targetLabels: PodMonitors have no Service. Use podTargetLabels.
{{- end }}
{{- if and $.Values.podMonitor.enabled (eq (.enabled | toString) "false") }}
- podMonitor.enabled: serviceMonitor.enabled is false, which switches both off. Set it to true or auto.
{{- end }}
{{- if and (eq (.enabled | toString) "true") $.Values.agent.enabled (not $.Values.agent.service.enabled) (not $.Values.podMonitor.enabled) }}
- agent.service.enabled: a ServiceMonitor finds agents by their Service. Set it to true, or podMonitor.enabled.
{{- end }}
{{- if and .jobLabel (eq (include "gpusteward.job" (list $ "agent")) (include "gpusteward.job" (list $ "analyzer"))) }}
- serviceMonitor.jobLabel: {{ .jobLabel }} has one value for agents and analyzer, and alerts tell them apart by job. Use app.kubernetes.io/component, or a label with two values in agent.service.labels and analyzer.service.labels (podLabels with podMonitor).
{{- end }}
{{- $tokens := $.Values.analyzer.tokens }}
{{- if and $.Values.analyzer.enabled (include "gpusteward.hasMonitors" $) (not $tokens.existingSecret) (not (include "gpusteward.analyzer.tokens" $ | fromYaml).viewer) (not (and $tokens.generate (include "gpusteward.hasCluster" $))) }}
- analyzer.tokens.existingSecret: Prometheus scrapes the analyzer with the viewer's token, and there is none: {{ $tokens.generate | ternary "without a cluster (helm template, Argo CD) no token is created, as it would be another one at every rendering" "analyzer.tokens.generate is false" }}. Name a Secret with tokens.yaml and viewer (docs/how-to/helm.md).
{{- end }}
{{- end }}
{{- end }}

{{- define "gpusteward.hostErrors" -}}
{{- $name := "^(\\*\\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" }}
{{- range $path, $hosts := dict "ingress.hosts" .Values.analyzer.ingress.hosts "httpRoute.hostnames" .Values.analyzer.httpRoute.hostnames }}
{{- range $hosts }}
{{- if or (not (regexMatch $name .)) (regexMatch "^[0-9.]+$" .) }}
- analyzer.{{ $path }}: {{ . | quote }} is no host name. Write gpus.example.com, without scheme, port and path.
{{- end }}
{{- end }}
{{- end }}
{{- if not (hasPrefix "/" .Values.analyzer.ingress.path) }}
- analyzer.ingress.path: {{ .Values.analyzer.ingress.path | quote }} does not begin with a slash.
{{- end }}
{{- end }}

{{/* Values of dcgm-exporter's chart that stand elsewhere here. Empty ones and those with `enabled: false` do no harm. */}}
{{- define "gpusteward.dcgmExporterErrors" -}}
{{- range $path, $instead := .Files.Get "files/dcgm-exporter-values.yaml" | fromYaml }}
{{- $value := $.Values.agent }}
{{- range splitList "." $path }}{{ $value = get (default dict $value) . }}{{ end }}
{{- if and $value (not (and (kindIs "map" $value) (eq (get $value "enabled" | toString) "false"))) }}
- agent.{{ $path }}: {{ $instead }}
{{- end }}
{{- end }}
{{- with .Values.serviceMonitor.apiVersion }}
{{- if ne . "monitoring.coreos.com/v1" }}
- serviceMonitor.apiVersion: the Prometheus Operator has monitoring.coreos.com/v1 only. Leave it out.
{{- end }}
{{- end }}
{{- if contains "dcgm-exporter" .Values.agent.image.repository }}
- agent.image.repository: this is the image of dcgm-exporter. Leave it out, or name the agent's image.
{{- end }}
{{- end }}

{{/* Names that a list may have once: of volumes, mounts and containers, the chart's own and those of values. */}}
{{- define "gpusteward.duplicateErrors" -}}
{{- $root := . }}
{{- range $component, $template := dict "agent" "agent/daemonset.yaml" "analyzer" "analyzer/deployment.yaml" }}
{{- with include (printf "%s/%s" $root.Template.BasePath $template) $root | fromYaml }}
{{- $pod := .spec.template.spec }}
{{- $lists := dict "extraVolumes" (dict "key" "name" "items" $pod.volumes) "extraContainers" (dict "key" "name" "items" (concat $pod.containers (default list $pod.initContainers))) }}
{{- $_ := set $lists "extraVolumeMounts" (dict "key" "mountPath" "items" (first $pod.containers).volumeMounts) }}
{{- range $value, $list := $lists }}
{{- $seen := dict }}
{{- range $list.items }}
{{- $name := get . $list.key }}
{{- if hasKey $seen $name }}
- {{ $component }}.{{ $value }}: {{ $name }} is there twice, or is the chart's own. Use another {{ $list.key }}.
{{- end }}
{{- $_ := set $seen $name true }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
