{{/* An object, with the user's members over it: include "muster.object" (list "service" .) */}}
{{- define "muster.object" -}}
{{- $name := index . 0 -}}
{{- $root := index . 1 -}}
{{- $object := include (printf "muster.%s" $name) $root | fromYaml -}}
{{- mergeOverwrite $object (get $root.Values.merge $name | default dict) | toYaml -}}
{{- end }}

{{/* Metadata of an object: include "muster.metadata" (list "-api" "provisioner" .) */}}
{{- define "muster.metadata" -}}
{{- $root := index . 2 -}}
name: {{ $root.Release.Name }}{{ index . 0 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "muster.selector" (list (index . 1) $root) | nindent 2 }}
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $root.Release.Service }}
  helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ (index . 1).Release.Name }}
app.kubernetes.io/component: {{ index . 0 }}
{{- end }}

{{- define "muster.image" -}}
image: {{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
imagePullPolicy: {{ .pullPolicy }}
{{- end }}

{{- define "muster.container" -}}
{{- $image := .Values.image -}}
{{- include "muster.image" (merge (dict "tag" ($image.tag | default .Chart.AppVersion)) $image) }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* What all pods have: no account of Kubernetes, and a user without rights. */}}
{{- define "muster.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "muster.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "muster.selector" . | nindent 6 }}
{{- end }}

{{- define "muster.claim" -}}
accessModes: [ReadWriteOncePod]
{{- with .class }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests: {storage: {{ .size }}}
{{- end }}

{{/* Names of the brokers of mode cluster, separated by spaces. */}}
{{- define "muster.brokers" -}}
{{- range $i := until (int .Values.brokers.replicas) }}{{ if $i }} {{ end -}}
{{ $.Release.Name }}-broker-{{ $i }}.{{ $.Release.Name }}-broker
{{- end }}
{{- end }}
