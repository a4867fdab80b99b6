{{/* The binding of a role to the service account of a component, in its namespace or another:
     (list $ "agent" "ClusterRole"), (list $ "analyzer" "Role" "gpu-operator"), or of one whose name ends so:
     (list $ "analyzer" "Role" "team-a" "-reclaim"). */}}
{{- define "gpusteward.binding" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 2 -}}
{{- $name := include "gpusteward.clusterName" . -}}
{{- if gt (len .) 4 }}{{ $name = print $name (index . 4) }}{{ end -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- if eq $kind "Role" }}
  namespace: {{ index . 3 }}
  {{- end }}
  labels:
    {{- include "gpusteward.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "gpusteward.serviceAccountName" . }}
    namespace: {{ include "gpusteward.namespace" $root }}
{{- end }}
