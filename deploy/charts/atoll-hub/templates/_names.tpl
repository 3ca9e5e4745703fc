{{/* The name of all that belongs to a release. */}}
{{- define "atoll-hub.name" -}}
{{- if contains "atoll-hub" .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-atoll-hub" .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "atoll-hub.selector" -}}
app.kubernetes.io/name: atoll-hub
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The image, by its digest where that is given. */}}
{{- define "atoll-hub.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* What cannot work is refused before anything is made. */}}
{{- define "atoll-hub.check" -}}
{{- if not .Values.gatewayAddress -}}
{{- fail "set gatewayAddress, HOST:PORT at which agents reach the hub's gateway from where they are" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.etcd.servers) -}}
{{- fail "replicas above 1 need etcd.servers: an embedded etcd has one hub" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.keys.existingSecret) -}}
{{- fail "replicas above 1 need keys.existingSecret: hubs on one etcd share one key set, which the first makes in its data directory" -}}
{{- end -}}
{{- if and .Values.etcd.existingSecret (not .Values.etcd.servers) -}}
{{- fail "etcd.existingSecret is for etcd.servers, which are missing" -}}
{{- end -}}
{{- if and .Values.etcd.quotaBytes .Values.etcd.servers -}}
{{- fail "etcd.quotaBytes is for the embedded etcd: set the quota of etcd.servers in that etcd" -}}
{{- end -}}
{{- if and .Values.console.oidc.issuer (not .Values.authentication) -}}
{{- fail "console.oidc.issuer needs authentication: the hub accepts tokens of that issuer" -}}
{{- end -}}
{{- if and (not .Values.console.oidc.issuer) (or .Values.console.address .Values.console.oidc.clientID .Values.console.oidc.existingSecret .Values.console.oidc.scopes) -}}
{{- fail "console.address and console.oidc are for console.oidc.issuer, which is missing" -}}
{{- end -}}
{{- end -}}
