{{/* config.yaml: what the chart knows, and analyzer.config over it. */}}
{{- define "gpusteward.analyzer.config" -}}
{{- $config := dict "prometheus" (dict "url" .Values.prometheus.url) -}}
{{- if include "gpusteward.analyzer.findsEngine" . -}}
{{- with .Values.prometheus -}}
{{- $engine := dict "service_selector" .serviceSelector "service_namespace" .serviceNamespace "service_port" (toString .servicePort) -}}
{{- $_ := set $config "prometheus" $engine -}}
{{- end -}}
{{- end -}}
{{- if .Values.agent.enabled -}}
{{- $selector := include "gpusteward.selectorLabels" (list . "agent") | fromYaml -}}
{{- $labels := list -}}
{{- range $key, $value := $selector }}{{ $labels = append $labels (printf "%s=%s" $key $value) }}{{ end -}}
{{- $scrape := dict "selector" (join "," $labels) "port" .Values.agent.service.port -}}
{{- $_ := set $config "scrape" (set $scrape "scheme" (include "gpusteward.scheme" (list . "agent"))) -}}
{{- end -}}
{{- if .Values.kubectl.enabled -}}
{{- $_ := set $config "auth" (dict "kubernetes" (dict "enabled" true)) -}}
{{- end -}}
{{- if ne .Values.reclaim.mode "off" -}}
{{- $reclaim := dict "mode" .Values.reclaim.mode -}}
{{- $_ := set $config "reclaim" $reclaim -}}
{{- end -}}
{{- with .Values.reclaim.namespaces -}}
{{- $_ := set $config "reclaim" (merge (dict "namespaces" (uniq .)) (default dict $config.reclaim)) -}}
{{- end -}}
{{- if include "gpusteward.analyzer.hasPolicies" . -}}
{{- $reclaim := default dict $config.reclaim -}}
{{- $_ := set $config "reclaim" (set $reclaim "policy_file" "/etc/gpusteward/policies/policies.yaml") -}}
{{- end -}}
{{- mergeOverwrite $config (deepCopy .Values.analyzer.config) | toYaml -}}
{{- end }}

{{/* off, observe or enforce: of the setting, or of the value. */}}
{{- define "gpusteward.analyzer.reclaimMode" -}}
{{- default .Values.reclaim.mode (default dict .Values.analyzer.config.reclaim).mode -}}
{{- end }}

{{/* "true" where the analyzer may change workloads. */}}
{{- define "gpusteward.analyzer.hasRights" -}}
{{- if .Values.reclaim.rights }}true{{ end -}}
{{- end }}

{{/* "true" where the analyzer gets a policy file: where it has a use for one, or values name policies. */}}
{{- define "gpusteward.analyzer.hasPolicies" -}}
{{- $mode := include "gpusteward.analyzer.reclaimMode" . -}}
{{- if or .Values.reclaim.policies .Values.reclaim.examplePolicies (ne $mode "off") }}true{{ end -}}
{{- end }}

{{/* The policy file. */}}
{{- define "gpusteward.analyzer.policies" -}}
{{- $policies := .Values.reclaim.policies -}}
{{- if .Values.reclaim.examplePolicies }}{{ $policies = concat $policies (.Files.Get "files/example-policies.yaml" | fromYaml).policies }}{{ end -}}
{{- dict "policies" $policies | toYaml -}}
{{- end }}

{{/* "true" where the engine's Service is found by label. */}}
{{- define "gpusteward.analyzer.findsEngine" -}}
{{- if and .Values.prometheus.serviceSelector (not .Values.prometheus.url) }}true{{ end -}}
{{- end }}

{{/* For people: where the usage of GPUs comes from. */}}
{{- define "gpusteward.analyzer.readsFrom" -}}
{{- $prometheus := .Values.prometheus -}}
{{- if $prometheus.url -}}
{{- $prometheus.url -}}
{{- else if include "gpusteward.analyzer.findsEngine" . -}}
the engine whose Service has the labels {{ $prometheus.serviceSelector }}, in {{ with $prometheus.serviceNamespace }}the namespace {{ . }}{{ else }}any namespace{{ end }}; its log and /api/v1/sources name the one it found
{{- else if .Values.analyzer.existingConfigMap -}}
what the ConfigMap {{ .Values.analyzer.existingConfigMap }} says
{{- else if .Values.agent.enabled -}}
the agents directly; set prometheus.url to use Prometheus
{{- else -}}
the exporters of analyzer.config.scrape
{{- end -}}
{{- end }}

{{/* "true" where the ledger is in PostgreSQL. */}}
{{- define "gpusteward.analyzer.hasPostgresql" -}}
{{- with .Values.analyzer -}}
{{- if or .postgresql.url .postgresql.existingSecret.name (hasKey .secretKeyRefs "ledger.url") (hasPrefix "postgres" (get .secrets "ledger.url")) }}true{{ end -}}
{{- end -}}
{{- end }}

{{- define "gpusteward.analyzer.hasClaim" -}}
{{- if and .Values.analyzer.persistence.enabled (not (include "gpusteward.analyzer.hasPostgresql" .)) }}true{{ end -}}
{{- end }}

{{/* "true" where the claim belongs to the release. With PostgreSQL no pod mounts it: one that is there stays, as a rollback needs
     it and a ledger can be copied from it; a new one would stay Pending where volumes are made for pods, and `helm --wait`
     would wait for it. Without a cluster nobody knows whether it is there. */}}
{{- define "gpusteward.analyzer.ownsClaim" -}}
{{- $claim := lookup "v1" "PersistentVolumeClaim" (include "gpusteward.namespace" .) (include "gpusteward.componentName" (list . "analyzer")) -}}
{{- if or (include "gpusteward.analyzer.hasClaim" .) $claim (not (include "gpusteward.hasCluster" .)) }}true{{ end -}}
{{- end }}

{{- define "gpusteward.analyzer.tokensSecret" -}}
{{- default (include "gpusteward.componentName" (list . "analyzer")) .Values.analyzer.tokens.existingSecret -}}
{{- end }}

{{/* The address of the analyzer inside of the cluster, as its certificate names it. */}}
{{- define "gpusteward.analyzer.host" -}}
{{- include "gpusteward.componentName" (list . "analyzer") }}.{{ include "gpusteward.namespace" . }}.svc
{{- end }}

{{/* "true" where helm talks to a cluster: `helm template`, and so Argo CD, looks nothing up. */}}
{{- define "gpusteward.hasCluster" -}}
{{- if lookup "v1" "Secret" .Release.Namespace "" }}true{{ end -}}
{{- end }}

{{/* The tokens that are given or kept, by role. A new one would be another one at every rendering without a cluster. One that was
     given and is given no more is not kept. */}}
{{- define "gpusteward.analyzer.tokens" -}}
{{- $secret := default dict (lookup "v1" "Secret" (include "gpusteward.namespace" .) (include "gpusteward.componentName" (list . "analyzer"))) -}}
{{- $given := dig "metadata" "annotations" "gpusteward.io/given-tokens" "" $secret | splitList "," -}}
{{- $kept := deepCopy (default dict $secret.data) -}}
{{- range $given }}{{ $_ := unset $kept . }}{{ end -}}
{{- range $role := list "viewer" "operator" "admin" }}
{{- with default (get $kept $role | b64dec) (get $.Values.analyzer.tokens $role) }}
{{ $role }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Secrets in the chart's own Secret: settings and their values. */}}
{{- define "gpusteward.analyzer.ownSecrets" -}}
{{- $secrets := deepCopy .Values.analyzer.secrets -}}
{{- with .Values.analyzer.postgresql.url }}{{ $_ := set $secrets "ledger.url" . }}{{ end -}}
{{- toYaml $secrets -}}
{{- end }}

{{/* Variables of settings that are secrets. The list of those settings is written by `make chart`. */}}
{{- define "gpusteward.analyzer.secretEnv" -}}
{{- $values := .Values.analyzer -}}
{{- $own := include "gpusteward.analyzer.ownSecrets" . | fromYaml -}}
{{- $refs := deepCopy $values.secretKeyRefs -}}
{{- with $values.postgresql.existingSecret }}
{{- if .name }}{{ $_ := set $refs "ledger.url" (dict "name" .name "key" .key) }}{{ end -}}
{{- end }}
{{- range $setting := (.Files.Get "files/settings.yaml" | fromYaml).secrets }}
{{- $ref := get $refs $setting }}
{{- if hasKey $own $setting }}
{{- $ref = dict "name" (include "gpusteward.componentName" (list $ "analyzer")) "key" $setting }}
{{- else if and $values.existingSecret (not $ref) }}
{{- $ref = dict "name" $values.existingSecret "key" $setting "optional" true }}
{{- end }}
{{- with $ref }}
- name: GPUSTEWARD_{{ $setting | replace "." "__" | upper }}
  valueFrom:
    secretKeyRef:
      {{- toYaml . | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Namespaces beside its own whose pods the analyzer may list, because it scrapes exporters there. */}}
{{- define "gpusteward.analyzer.scrapeNamespaces" -}}
{{- $scrape := default dict .Values.analyzer.config.scrape -}}
{{- $all := concat (list (include "gpusteward.namespace" .)) (default list $scrape.namespaces) -}}
{{- with $scrape.namespace }}{{ $all = append $all . }}{{ end -}}
{{- without (uniq $all) "*" | toJson -}}
{{- end }}

{{- define "gpusteward.analyzer.podSecurityContext" -}}
{{- $context := .Values.analyzer.podSecurityContext -}}
{{- if include "gpusteward.isOpenShift" . -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}
{{- end -}}
{{- toYaml $context -}}
{{- end }}
