{{/* The binding of a role to the service account of a component, in its namespace or another:
     (list $ "agent" "ClusterRole"), (list $ "analyzer" "Role" "gpu-operator"). */}}
{{- define "gpusteward.binding" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 2 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ include "gpusteward.clusterName" . }}
  {{- if eq $kind "Role" }}
  namespace: {{ index . 3 }}
  {{- end }}
  labels:
    {{- include "gpusteward.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ include "gpusteward.clusterName" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "gpusteward.serviceAccountName" . }}
    namespace: {{ include "gpusteward.namespace" $root }}
{{- end }}
