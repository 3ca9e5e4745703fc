{{/* The Secret with which the agent joins. */}}
{{- define "atoll-agent.joinSecret" -}}
{{- .Values.join.existingSecret | default "atoll-agent-join" -}}
{{- end -}}

{{/* The image, by its digest where that is given. */}}
{{- define "atoll-agent.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
