{{/* The provisioner.yaml of one pod: include "muster.config" (list "muster-0" .) */}}
{{- define "muster.config" -}}
{{- $root := index . 1 -}}
{{- $values := $root.Values -}}
{{- $config := dict "name" (index . 0) "trust_domain" $values.trustDomain "data_dir" "/var/lib/muster" -}}
{{- with $values.site }}{{ $_ := set $config "site" . }}{{ end -}}
{{- $_ := mergeOverwrite $config (include "muster.config.files" $root | fromYaml)
    (include "muster.config.broker" $root | fromYaml) (include "muster.config.http" $root | fromYaml) $values.config -}}
{{- toYaml $config -}}
{{- end }}

{{- define "muster.config.files" -}}
tokens: {signers: [{file: /etc/muster/setup/signer.pem}]}
ca:
  root: /etc/muster/setup/root.pem
  certificate: /etc/muster/setup/issuing.pem
  key: /etc/muster/setup/issuing-key.pem
seal: {keys: [/etc/muster/setup/seal-key.pem]}
{{- if .Values.setup.encrypted }}
keys: {passphrase_file: /etc/muster/setup/passphrase}
{{- end }}
policy: /etc/muster/policy
configuration: {template: /etc/muster/setup/server.conf}
{{- end }}

{{- define "muster.config.broker" -}}
{{- $brokers := splitList " " (include "muster.brokers" .) -}}
{{- $service := printf "%s.%s.svc" .Release.Name .Release.Namespace -}}
broker:
{{- if eq .Values.mode "embedded" }}
  listen: ":4222"
{{- else }}
  {{- $urls := .Values.brokers.urls }}
  {{- if eq .Values.mode "cluster" }}
    {{- range $brokers }}{{ $urls = append $urls (printf "tls://%s:4222" .) }}{{ end }}
  {{- end }}
  url: {{ join "," $urls }}
  credentials: /etc/muster/setup/provisioner
  system_credentials: /etc/muster/setup/system
  callout: {issuer: /etc/muster/setup/issuer, xkey: /etc/muster/setup/xkey}
{{- end }}
  names: {{ concat (list $service) .Values.names (ternary $brokers list (eq .Values.mode "cluster")) | uniq | toJson }}
{{- if eq .Values.mode "cluster" }}
store: {replicas: {{ min 3 .Values.brokers.replicas }}}
{{- end }}
{{- end }}

{{- define "muster.config.http" -}}
health: {listen: ":8080", metrics: true}
{{- with .Values.api }}
{{- if .enabled }}
{{- $service := printf "%s-api.%s.svc" $.Release.Name $.Release.Namespace }}
api:
  listen: ":8443"
  names: {{ concat (list $service "localhost") (compact (list .ingress.host .route.host)) .names | uniq | toJson }}
{{- end }}
{{- end }}
{{- end }}
