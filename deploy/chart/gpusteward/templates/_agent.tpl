{{/* Keys of the agent's ConfigMap. */}}
{{- define "gpusteward.agent.files" -}}
{{- with .Values.agent.customMetrics }}
metrics: |
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.agent.config }}
{{- if and .enabled .create }}
{{ .key }}: |
  {{- .data | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.agent.ratioFile }}
gpu_allocation.txt: |
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "gpusteward.agent.args" -}}
- agent
- --address=:{{ .Values.agent.service.port }}
{{- $inArguments := regexMatch "(^| )(-c|--?collect-interval)( |=|$)" (join " " .Values.agent.arguments) }}
{{- $inConfig := and .Values.agent.config.enabled (eq (float64 .Values.agent.interval) 5.0) }}
{{- if not (or $inArguments $inConfig) }}
- --interval={{ .Values.agent.interval }}
{{- end }}
- --log-level={{ .Values.agent.logLevel }}
- --log-format={{ .Values.agent.logFormat }}
{{- if .Values.agent.hostProcFsMount.enabled }}
- --proc=/host/proc
{{- end }}
- --cgroup={{ .Values.agent.hostCgroupMount.enabled | ternary "/host/cgroup" "" }}
{{- if or .Values.agent.customMetrics .Values.agent.customMetricsConfigMap }}
- --collectors=/etc/gpusteward/fields/metrics
{{- end }}
{{- if .Values.agent.config.enabled }}
- --config-file={{ .Values.agent.config.mountPath }}
{{- end }}
{{- if .Values.agent.ratioFile }}
- --ratio-file=/etc/gpusteward/files/gpu_allocation.txt
{{- end }}
{{- with include "gpusteward.profiling.address" . }}
- --dcgm-hostengine={{ . }}
{{- end }}
{{- with .Values.agent.kubernetes }}
{{- if .enablePodLabels }}
- --kubernetes-enable-pod-labels
{{- end }}
{{- if .enablePodUID }}
- --kubernetes-enable-pod-uid
{{- end }}
{{- with .podLabelAllowlistRegex }}
- {{ join "," . | printf "--kubernetes-pod-label-allowlist-regex=%s" | quote }}
{{- end }}
{{- end }}
{{- if .Values.agent.hpcJobMappingDir }}
- --hpc-job-mapping-dir=/host/hpc-jobs
{{- end }}
{{- if include "gpusteward.hasWebConfig" (list . "agent") }}
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
