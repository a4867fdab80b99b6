{{/* Names, labels and images. `component` is agent or analyzer; helpers with it take (list $ "agent"). */}}

{{- define "gpusteward.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "gpusteward.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "gpusteward.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gpusteward.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "gpusteward.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end }}

{{- define "gpusteward.componentName" -}}
{{- $root := index . 0 -}}
{{- printf "%s-%s" (include "gpusteward.fullname" $root) (index . 1) -}}
{{- end }}

{{/* Names of cluster-wide objects, and of those in other namespaces: two releases of one name in two namespaces have
     different ones. (list $ "analyzer") */}}
{{- define "gpusteward.clusterName" -}}
{{- $namespace := include "gpusteward.namespace" (index . 0) -}}
{{- include "gpusteward.componentName" . }}{{ if ne $namespace "gpusteward" }}-{{ $namespace }}{{ end -}}
{{- end }}

{{/* The start of names in this namespace, or in that of the release where it is empty: (list $ "monitoring"). */}}
{{- define "gpusteward.nameIn" -}}
{{- $own := include "gpusteward.namespace" (index . 0) -}}
{{- include "gpusteward.fullname" (index . 0) }}{{ if and (ne $own "gpusteward") (ne $own (default $own (index . 1))) }}-{{ $own }}{{ end -}}
{{- end }}

{{- define "gpusteward.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "gpusteward.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "gpusteward.labels" -}}
{{- $root := index . 0 -}}
{{ include "gpusteward.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* metadata: of an object of this component: name, namespace, labels. */}}
{{- define "gpusteward.metadata" -}}
name: {{ include "gpusteward.componentName" . }}
namespace: {{ include "gpusteward.namespace" (index . 0) }}
labels:
  {{- include "gpusteward.labels" . | nindent 2 }}
{{- end }}

{{- define "gpusteward.serviceAccountName" -}}
{{- $account := (index (index . 0).Values (index . 1)).serviceAccount -}}
{{- if $account.create -}}
{{- default (include "gpusteward.componentName" .) $account.name -}}
{{- else -}}
{{- default "default" $account.name -}}
{{- end -}}
{{- end }}

{{- define "gpusteward.image" -}}
{{- $root := index . 0 -}}
{{- $image := (index $root.Values (index . 1)).image -}}
{{- include "gpusteward.imageName" (list $image $root.Values.global.imageRegistry $root.Chart.AppVersion) -}}
{{- end }}

{{/* (list $image REGISTRY TAG): the registry that wins, and the tag where the image has none. */}}
{{- define "gpusteward.imageName" -}}
{{- $image := index . 0 -}}
{{- with default $image.registry (index . 1) }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default (index . 2) $image.tag }}{{ end -}}
{{- end }}

{{- define "gpusteward.imagePullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "string" . | ternary . (get (kindIs "string" . | ternary dict .) "name") }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The fields of a pod that the user chooses, the same for both components. */}}
{{- define "gpusteward.podFields" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
{{- include "gpusteward.imagePullSecrets" (index . 0) }}
serviceAccountName: {{ include "gpusteward.serviceAccountName" . }}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
enableServiceLinks: false # their variables would begin as those of settings do
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- else }}
{{- if gt (int $values.replicas) 1 }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "gpusteward.selectorLabels" . | nindent 14 }}
{{- end }}
{{- end }}
{{- $own := eq (index . 1) "agent" | ternary (include "gpusteward.profiling.initContainers" (index . 0)) "" | fromYamlArray }}
{{- with concat $own $values.extraInitContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* http or https; the ports of the analyzer are named so too. */}}
{{- define "gpusteward.scheme" -}}
{{- (index (index . 0).Values (index . 1)).tlsServerConfig.enabled | ternary "https" "http" -}}
{{- end }}

{{/* "true" where the component has a web config file. */}}
{{- define "gpusteward.hasWebConfig" -}}
{{- with index (index . 0).Values (index . 1) -}}
{{- if or .webConfigSecret .tlsServerConfig.enabled (default dict .basicAuth).users }}true{{ end -}}
{{- end -}}
{{- end }}

{{- define "gpusteward.webConfigSecret" -}}
{{- default (printf "%s-web-config" (include "gpusteward.componentName" .)) (index (index . 0).Values (index . 1)).webConfigSecret -}}
{{- end }}

{{/* Where web config file and certificate are mounted, and what from. */}}
{{- define "gpusteward.webConfigMounts" -}}
{{- if include "gpusteward.hasWebConfig" . }}
- name: web-config
  mountPath: /etc/gpusteward/web
  readOnly: true
{{- end }}
{{- if eq (include "gpusteward.scheme" .) "https" }}
- name: tls
  mountPath: /etc/gpusteward/tls
  readOnly: true
{{- end }}
{{- end }}

{{- define "gpusteward.webConfigVolumes" -}}
{{- if include "gpusteward.hasWebConfig" . }}
- name: web-config
  secret:
    secretName: {{ include "gpusteward.webConfigSecret" . }}
{{- end }}
{{- if eq (include "gpusteward.scheme" .) "https" }}
- name: tls
  secret:
    secretName: {{ (index (index . 0).Values (index . 1)).tlsServerConfig.existingSecret }}
{{- end }}
{{- end }}

{{/* A probe of a component: (list $ "agent" $probe "/livez" "metrics"). */}}
{{- define "gpusteward.probe" -}}
httpGet:
  path: {{ index . 3 }}
  port: {{ index . 4 }}
  {{- if eq (include "gpusteward.scheme" .) "https" }}
  scheme: HTTPS
  {{- end }}
{{ toYaml (index . 2) }}
{{- end }}

{{/* "true" where an object of these CRDs is rendered: (list $ .Values.serviceMonitor.enabled "monitoring.coreos.com/v1"). */}}
{{- define "gpusteward.isEnabled" -}}
{{- $enabled := index . 1 | toString -}}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") ((index . 0).Capabilities.APIVersions.Has (index . 2))) -}}
true
{{- end -}}
{{- end }}

{{- define "gpusteward.isOpenShift" -}}
{{- include "gpusteward.isEnabled" (list . .Values.openshift.enabled "security.openshift.io/v1") -}}
{{- end }}
