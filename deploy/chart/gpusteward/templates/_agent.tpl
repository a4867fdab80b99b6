{{- define "gpusteward.agent.scheme" -}}
{{- .Values.agent.tlsServerConfig.enabled | ternary "https" "http" -}}
{{- end }}

{{/* "true" where the agent has a web config file. */}}
{{- define "gpusteward.agent.hasWebConfig" -}}
{{- with .Values.agent -}}
{{- if or .webConfigSecret .tlsServerConfig.enabled .basicAuth.users }}true{{ end -}}
{{- end -}}
{{- end }}

{{- define "gpusteward.agent.webConfigSecret" -}}
{{- default (printf "%s-web-config" (include "gpusteward.componentName" (list . "agent"))) .Values.agent.webConfigSecret -}}
{{- end }}

{{/* Keys of the agent's ConfigMap. */}}
{{- define "gpusteward.agent.files" -}}
{{- with .Values.agent.customMetrics }}
metrics: |
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.agent.ratioFile }}
gpu_allocation.txt: |
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "gpusteward.agent.args" -}}
- agent
- --address=:{{ .Values.agent.service.port }}
{{- if not (regexMatch "(^| )(-c|--?collect-interval)( |=|$)" (join " " .Values.agent.arguments)) }}
- --interval={{ .Values.agent.interval }}
{{- end }}
- --log-level={{ .Values.agent.logLevel }}
- --log-format={{ .Values.agent.logFormat }}
{{- if .Values.agent.hostProcFsMount.enabled }}
- --proc=/host/proc
{{- end }}
{{- if or .Values.agent.customMetrics .Values.agent.customMetricsConfigMap }}
- --collectors=/etc/gpusteward/fields/metrics
{{- end }}
{{- if .Values.agent.ratioFile }}
- --ratio-file=/etc/gpusteward/files/gpu_allocation.txt
{{- end }}
{{- with .Values.agent.dcgmHostengine }}
- --dcgm-hostengine={{ . }}
{{- end }}
{{- if .Values.agent.hpcJobMappingDir }}
- --hpc-job-mapping-dir=/host/hpc-jobs
{{- end }}
{{- if include "gpusteward.agent.hasWebConfig" . }}
- --web-config-file=/etc/gpusteward/web/web-config.yaml
{{- end }}
{{- range .Values.agent.arguments }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "gpusteward.agent.securityContext" -}}
{{- $context := deepCopy .Values.agent.securityContext -}}
{{- if .Values.agent.mig.enabled -}}
{{- $capabilities := default dict $context.capabilities -}}
{{- $added := append (default list $capabilities.add) "SYS_ADMIN" | uniq -}}
{{- $_ := set $context "capabilities" (merge (dict "add" $added) $capabilities) -}}
{{- end -}}
{{- if include "gpusteward.isOpenShift" . -}}
{{- $context = merge $context (dict "seLinuxOptions" (dict "type" "spc_t")) -}}
{{- end -}}
{{- toYaml $context -}}
{{- end }}
