{{/* Profiling of GPUs before Hopper: libdcgm for the agent, and the hostengine that it asks. */}}

{{/* The address of the hostengine; empty without one. */}}
{{- define "gpusteward.profiling.address" -}}
{{- $profiling := .Values.agent.profiling -}}
{{- if eq $profiling.hostengine "sidecar" -}}
unix:/run/dcgm/hostengine.sock
{{- else if eq $profiling.hostengine "gpu-operator" -}}
{{- $profiling.address -}}
{{- else -}}
{{- .Values.agent.dcgmHostengine -}}
{{- end -}}
{{- end }}

{{/* Copies libdcgm, which is not part of the agent's image, out of NVIDIA's image. It sees no GPU and needs no rights. */}}
{{- define "gpusteward.profiling.initContainers" -}}
{{- if ne .Values.agent.profiling.hostengine "off" }}
- name: libdcgm
  image: {{ include "gpusteward.imageName" (list .Values.agent.profiling.image "" "") }}
  imagePullPolicy: {{ .Values.agent.profiling.image.pullPolicy }}
  command:
    - sh
    - -c
    - |
      for library in "$0"/lib/*-linux-gnu/libdcgm.so.? "$0"/lib64/libdcgm.so.?; do
        if [ -e "$library" ]; then cp -L "$library" "$1/" && exit 0; fi
      done
      echo "this image has no libdcgm: set agent.profiling.image to NVIDIA's image dcgm" >&2
      exit 1
    - /usr
    - /opt/dcgm/lib
  env:
    - name: NVIDIA_VISIBLE_DEVICES
      value: void
  resources:
    requests:
      cpu: 10m
      memory: 16Mi
    limits:
      memory: 64Mi
  securityContext:
    runAsUser: 65534
    runAsNonRoot: true
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
    seccompProfile:
      type: RuntimeDefault
  volumeMounts:
    - name: libdcgm
      mountPath: /opt/dcgm/lib
{{- end }}
{{- end }}

{{/* The hostengine: on a Unix socket, as its port would have no authentication. */}}
{{- define "gpusteward.profiling.containers" -}}
{{- with .Values.agent.profiling }}
{{- if eq .hostengine "sidecar" }}
- name: hostengine
  image: {{ include "gpusteward.imageName" (list .image "" "") }}
  imagePullPolicy: {{ .image.pullPolicy }}
  command: [nv-hostengine, --no-daemon, --domain-socket, /run/dcgm/hostengine.sock, --log-level, ERROR, --log-filename, "-"]
  env:
    - name: NVIDIA_VISIBLE_DEVICES
      value: all
    - name: NVIDIA_DRIVER_CAPABILITIES
      value: compute,utility
    {{- if $.Values.agent.mig.enabled }}
    - name: NVIDIA_MIG_MONITOR_DEVICES
      value: all
    {{- end }}
  resources:
    {{- toYaml .resources | nindent 4 }}
  securityContext:
    {{- toYaml .securityContext | nindent 4 }}
  volumeMounts:
    - name: hostengine
      mountPath: /run/dcgm
{{- end }}
{{- end }}
{{- end }}

{{- define "gpusteward.profiling.volumeMounts" -}}
{{- $hostengine := .Values.agent.profiling.hostengine }}
{{- if ne $hostengine "off" }}
- name: libdcgm
  mountPath: /opt/dcgm/lib
  readOnly: true
{{- end }}
{{- if eq $hostengine "sidecar" }}
- name: hostengine
  mountPath: /run/dcgm
  readOnly: true
{{- end }}
{{- end }}

{{- define "gpusteward.profiling.volumes" -}}
{{- $hostengine := .Values.agent.profiling.hostengine }}
{{- if ne $hostengine "off" }}
- name: libdcgm
  emptyDir:
    sizeLimit: 64Mi
{{- end }}
{{- if eq $hostengine "sidecar" }}
- name: hostengine
  emptyDir: {}
{{- end }}
{{- end }}
