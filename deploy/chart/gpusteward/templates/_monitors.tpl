{{/* The ServiceMonitor or PodMonitor of a component: (list $ "agent" "metrics"). */}}
{{- define "gpusteward.monitor" -}}
{{- $root := index . 0 -}}
{{- $isAgent := eq (index . 1) "agent" -}}
{{- with $root.Values.serviceMonitor -}}
apiVersion: monitoring.coreos.com/v1
kind: {{ $root.Values.podMonitor.enabled | ternary "PodMonitor" "ServiceMonitor" }}
metadata:
  {{- include "gpusteward.metadata" $ | nindent 2 }}
    {{- with .additionalLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- with .jobLabel }}
  jobLabel: {{ . }}
  {{- end }}
  {{- with .targetLabels }}
  targetLabels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .podTargetLabels }}
  podTargetLabels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .sampleLimit }}
  sampleLimit: {{ int . }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "gpusteward.selectorLabels" $ | nindent 6 }}
  {{ $root.Values.podMonitor.enabled | ternary "podMetricsEndpoints" "endpoints" }}:
    - port: {{ index $ 2 }}
      interval: {{ .interval }}
      scrapeTimeout: {{ .scrapeTimeout }}
      honorLabels: {{ .honorLabels }} # true keeps pod and namespace of the workload instead of renaming them to exported_pod
      {{- if eq (include "gpusteward.scheme" $) "https" }}
      scheme: https
      {{- with $isAgent | ternary .tlsConfig (include "gpusteward.analyzer.tlsConfig" $root | fromYaml) }}
      tlsConfig:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- if and $isAgent .basicAuthSecret }}
      basicAuth:
        username: {name: {{ .basicAuthSecret }}, key: username}
        password: {name: {{ .basicAuthSecret }}, key: password}
      {{- end }}
      {{- if not $isAgent }}
      authorization:
        credentials:
          name: {{ include "gpusteward.analyzer.tokensSecret" $root }}
          key: viewer
      {{- end }}
      {{- if or $isAgent .relabelings }}
      relabelings:
        {{- if $isAgent }}
        # Of the agent's own pod: on series without a holder they would name it as the holder.
        - action: labeldrop
          regex: pod|namespace|container
        {{- end }}
        {{- with .relabelings }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with .metricRelabelings }}
      metricRelabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end }}

{{/* How Prometheus verifies the analyzer. */}}
{{- define "gpusteward.analyzer.tlsConfig" -}}
{{- with .Values.analyzer.tlsServerConfig -}}
serverName: {{ include "gpusteward.analyzer.host" $ }}
{{- with .caFilename }}
ca:
  secret:
    name: {{ $.Values.analyzer.tlsServerConfig.existingSecret }}
    key: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The label `job` of a component's targets: the name of the Service, or the value of jobLabel. */}}
{{- define "gpusteward.job" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
{{- $labels := include "gpusteward.labels" . | fromYaml -}}
{{- $labels = merge (deepCopy ($root.Values.podMonitor.enabled | ternary $values.podLabels $values.service.labels)) $labels -}}
{{- default (include "gpusteward.componentName" .) (get $labels $root.Values.serviceMonitor.jobLabel) -}}
{{- end }}

{{/* "true" where ServiceMonitors or PodMonitors are rendered: not automatically beside scrape annotations. */}}
{{- define "gpusteward.hasMonitors" -}}
{{- if not (and .Values.scrapeAnnotations.enabled (eq (.Values.serviceMonitor.enabled | toString) "auto")) -}}
{{- include "gpusteward.isEnabled" (list . .Values.serviceMonitor.enabled "monitoring.coreos.com/v1") -}}
{{- end -}}
{{- end }}
