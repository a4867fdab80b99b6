{{/* Values that contradict each other or cannot work: value, what is wrong, why, what to do. All are reported at once. */}}
{{- define "gpusteward.errors" -}}
{{- $agent := .Values.agent -}}
{{- $analyzer := .Values.analyzer -}}
{{- $config := $analyzer.config -}}
{{- $scrape := default dict $config.scrape -}}
{{- $engine := or .Values.prometheus.url .Values.prometheus.serviceSelector }}
{{- if not (or $agent.enabled $analyzer.enabled) }}
- agent.enabled, analyzer.enabled: both are false, so nothing would be installed. Enable at least one of them.
{{- end }}
{{- if and $analyzer.enabled (gt (int $analyzer.replicas) 1) (not (include "gpusteward.analyzer.hasPostgresql" .)) }}
- analyzer.replicas: {{ $analyzer.replicas }} replicas cannot share an SQLite file. Set analyzer.postgresql.url or analyzer.postgresql.existingSecret.name, or use one replica.
{{- end }}
{{- if and $analyzer.podDisruptionBudget.enabled (lt (int $analyzer.replicas) 2) }}
- analyzer.podDisruptionBudget.enabled: with one replica the budget would block every drain of its node. Use two replicas, or no budget.
{{- end }}
{{- if and $analyzer.enabled (not $agent.enabled) (not $engine) (not $analyzer.existingConfigMap) (not (or $scrape.targets $scrape.targets_file $scrape.selector)) }}
- agent.enabled: without agents the analyzer has nothing to read. Set prometheus.url, or analyzer.config.scrape.selector and scrape.namespaces to the pods of your dcgm-exporter (GPU operator: app=nvidia-dcgm-exporter in gpu-operator).
{{- end }}
{{- if and $analyzer.enabled .Values.rbac.create (eq (include "gpusteward.analyzer.reclaimMode" .) "enforce") (not (include "gpusteward.analyzer.hasRights" .)) }}
- reclaim.mode: enforce suspends and restores workloads, and the analyzer has no right to. Set reclaim.rights to true; leave it so after switching reclaim off, until everything is restored.
{{- end }}
{{- if and $analyzer.enabled .Values.kubectl.enabled }}
{{- $account := lookup "v1" "ServiceAccount" (include "gpusteward.namespace" .) "gpusteward-viewer" }}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" .Release.Name (default dict $account) }}
{{- if ne $owner .Release.Name }}
- kubectl.enabled: the service account gpusteward-viewer of this namespace belongs to the release {{ $owner }}. Its name is a role in the analyzer and cannot be another one: use another namespace, or kubectl.enabled=false in one of the two.
{{- end }}
{{- end }}
{{- with .Values.prometheus.url }}
{{- if not (regexMatch "^https?://[^/ ]+" .) }}
- prometheus.url: {{ . | quote }} is not an address. Write it with its scheme, such as http://prometheus-operated.monitoring:9090.
{{- end }}
{{- end }}
{{- if (default dict $config.prometheus).url }}
- analyzer.config.prometheus.url: the address is set in prometheus.url. Move it there.
{{- end }}
{{- range $path, $instead := dict "server.address" "analyzer.service.port (the container listens on 8080)" "server.tokens_file" "analyzer.tokens" "ledger.directory" "analyzer.persistence" "reclaim.namespaces" "reclaim.namespaces (Roles in them follow from it)" }}
{{- $parts := splitList "." $path }}
{{- if hasKey (default dict (get $config (first $parts))) (last $parts) }}
- analyzer.config.{{ $path }}: this setting belongs to the chart. Use {{ $instead }}.
{{- end }}
{{- end }}
{{- range (.Files.Get "files/settings.yaml" | fromYaml).secrets }}
{{- $parts := splitList "." . }}
{{- if get (default dict (get $config (first $parts))) (last $parts) }}
- analyzer.config.{{ . }}: this is a secret, and everybody who may read ConfigMaps would see it. Put it into a Secret with the key {{ . }} and name that in analyzer.existingSecret, or set analyzer.secretKeyRefs.
{{- end }}
{{- end }}
{{- with $analyzer.postgresql.url }}
{{- if not (regexMatch "^postgres(ql)?(\\+psycopg)?://[^ ]+$" .) }}
- analyzer.postgresql.url: this is not an address of PostgreSQL. Write postgresql://USER:PASSWORD@HOST/DATABASE.
{{- end }}
{{- end }}
{{- range $role := list "viewer" "operator" "admin" }}
{{- $token := get $analyzer.tokens $role }}
{{- if and $token (lt (len $token) 16) }}
- analyzer.tokens.{{ $role }}: a token of {{ len $token }} characters can be guessed. Use at least 16; `openssl rand -hex 32` creates one.
{{- end }}
{{- end }}
{{- range $component := list $agent $analyzer }}
{{- if and $component.image.digest (not (regexMatch "^sha256:[0-9a-f]{64}$" $component.image.digest)) }}
- image.digest: {{ $component.image.digest | quote }} is not a digest. Write sha256: and 64 hexadecimal digits, or set image.tag.
{{- end }}
{{- end }}
{{- if and $agent.enabled $agent.tlsServerConfig.enabled (not $agent.tlsServerConfig.existingSecret) }}
- agent.tlsServerConfig.existingSecret: HTTPS needs a certificate. Name a Secret with {{ $agent.tlsServerConfig.certFilename }} and {{ $agent.tlsServerConfig.keyFilename }}.
{{- end }}
{{- if and $analyzer.enabled $analyzer.tlsServerConfig.enabled (not $analyzer.tlsServerConfig.existingSecret) }}
- analyzer.tlsServerConfig.existingSecret: HTTPS needs a certificate. Name a Secret with {{ $analyzer.tlsServerConfig.certFilename }} and {{ $analyzer.tlsServerConfig.keyFilename }}.
{{- end }}
{{- if and $analyzer.tlsServerConfig.enabled (default dict $config.server).web_config_file }}
- analyzer.config.server.web_config_file: analyzer.tlsServerConfig makes this file. Set one of them; with a file of your own the chart does not know that the probes need HTTPS.
{{- end }}
{{- if and $agent.tlsServerConfig.enabled (has $agent.tlsServerConfig.clientAuthType (list "RequireAnyClientCert" "RequireAndVerifyClientCert")) }}
- agent.tlsServerConfig.clientAuthType: probes of the kubelet have no certificate, and the agent would be restarted for ever. Use VerifyClientCertIfGiven.
{{- end }}
{{- if and $agent.webConfigSecret (or $agent.tlsServerConfig.enabled $agent.basicAuth.users) }}
- agent.webConfigSecret: it takes the place of agent.tlsServerConfig and agent.basicAuth. Set one or the other.
{{- end }}
{{- if and $agent.enabled $agent.basicAuth.users $analyzer.enabled (not $engine) (not $scrape.username) }}
- agent.basicAuth.users: the analyzer scrapes the agents itself and has no password. Set analyzer.config.scrape.username and the secret scrape.password, or prometheus.url.
{{- end }}
{{- if and $agent.customMetrics $agent.customMetricsConfigMap }}
- agent.customMetrics: the fields are also in agent.customMetricsConfigMap. Set one of them.
{{- end }}
{{- if and $agent.config.enabled $agent.config.create (not $agent.config.data) }}
- agent.config.data: the configuration file is empty. Write it there, or name a ConfigMap in agent.config.name and set agent.config.create to false.
{{- end }}
{{- if and $agent.config.enabled (not $agent.config.create) (not $agent.config.name) }}
- agent.config.name: which ConfigMap has the configuration file? Name it, or set agent.config.create to true.
{{- end }}
{{- include "gpusteward.dcgmExporterErrors" . }}
{{- include "gpusteward.refusedErrors" . }}
{{- with $agent.dcgmHostengine }}
{{- if not (regexMatch "^(embedded|auto|unix:/.+|[^:/ ]+:[0-9]+|\\[.+\\]:[0-9]+)$" .) }}
- agent.dcgmHostengine: {{ . | quote }} is not an address. Write HOST:5555, unix:PATH, embedded or auto.
{{- end }}
{{- end }}
{{- if and $agent.dcgmHostengine (ne $agent.profiling.hostengine "off") }}
- agent.dcgmHostengine: profiling.hostengine {{ $agent.profiling.hostengine }} sets it. Set one of them.
{{- end }}
{{- if and $agent.enabled (eq $agent.profiling.hostengine "gpu-operator") (not (regexMatch "^[^:/ ]+:[0-9]+$" $agent.profiling.address)) }}
- agent.profiling.address: {{ $agent.profiling.address | quote }} is not an address. Write HOST:5555.
{{- end }}
{{- range $user, $hash := $agent.basicAuth.users }}
{{- if not (regexMatch `^\$2[aby]\$[0-9]{2}\$.{53}$` $hash) }}
- agent.basicAuth.users.{{ $user }}: this is no bcrypt hash. The chart cannot make one, as it would be another one at every rendering: write what `htpasswd -nBC 10 {{ $user }}` prints behind the colon, or name a Secret of your own in agent.webConfigSecret.
{{- end }}
{{- end }}
{{- range $key := list "interval" "scrapeTimeout" }}
{{- if not (regexMatch "^([0-9]+(ms|s|m|h))+$" (get $.Values.serviceMonitor $key)) }}
- serviceMonitor.{{ $key }}: {{ get $.Values.serviceMonitor $key | quote }} is not a duration. Write 15s or 1m.
{{- end }}
{{- end }}
{{- if and .Values.scrapeAnnotations.enabled (eq (.Values.serviceMonitor.enabled | toString) "true") }}
- scrapeAnnotations.enabled: with ServiceMonitors too every agent could be scraped twice, and sums would be double. Enable one of them.
{{- end }}
{{- if not (regexMatch "^[0-9]+(\\.[0-9]+)?([KMGTPE]i?|m)?$" $analyzer.persistence.size) }}
- analyzer.persistence.size: {{ $analyzer.persistence.size | quote }} is not a size. Write 5Gi.
{{- end }}
{{- if and $analyzer.ingress.enabled (not $analyzer.ingress.hosts) }}
- analyzer.ingress.hosts: an Ingress needs a host, such as gpus.example.com.
{{- end }}
{{- if and $analyzer.httpRoute.enabled (not $analyzer.httpRoute.parentRefs) }}
- analyzer.httpRoute.parentRefs: a route needs a Gateway. Write its name and namespace.
{{- end }}
{{- if and (or $analyzer.ingress.enabled $analyzer.httpRoute.enabled) (eq (default "" (default dict $config.server).anonymous_reads) "always") }}
- analyzer.config.server.anonymous_reads: "always" behind an Ingress or a route would show every workload to everybody who can reach it. Remove it, and set analyzer.config.auth.
{{- end }}
{{- end }}

{{- define "gpusteward.check" -}}
{{- with include "gpusteward.errors" . | trim -}}
{{- printf "\n\nThese values cannot work:\n%s\n" . | fail -}}
{{- end -}}
{{- with include "gpusteward.duplicateErrors" . | trim -}}
{{- printf "\n\nThese values cannot work:\n%s\n" . | fail -}}
{{- end -}}
{{- end }}

{{/* `helm upgrade --reuse-values` leaves out the sections that the previous chart did not have. */}}
{{- define "gpusteward.checkSections" -}}
{{- $missing := list -}}
{{- range $path := (.Files.Get "files/settings.yaml" | fromYaml).sections -}}
{{- $section := $.Values -}}
{{- range splitList "." $path }}{{ $section = get (default dict $section) . }}{{ end -}}
{{- if not (kindIs "map" $section) }}{{ $missing = append $missing $path }}{{ end -}}
{{- end -}}
{{- if $missing -}}
{{- printf "\n\nThese values are missing: %s.\nhelm upgrade --reuse-values leaves out what the previous chart did not have. Use --reset-then-reuse-values.\n" (join ", " $missing) | fail -}}
{{- end -}}
{{- end }}
