{{/* The Secret with which the agent joins. */}}
{{- define "atoll-agent.joinSecret" -}}
{{- .Values.join.existingSecret | default "atoll-agent-join" -}}
{{- end -}}

{{/* The ID of join.token, which is no secret; empty if it does not look like a token. */}}
{{- define "atoll-agent.tokenID" -}}
{{- if not .Values.join.existingSecret -}}
{{- regexFind "^atoll1\\.[a-z2-7]+\\." (trim .Values.join.token) | trimPrefix "atoll1." | trimSuffix "." -}}
{{- end -}}
{{- end -}}

{{/* The ID of the token that the agent removed from the Secret of the release; empty if it did not. */}}
{{- define "atoll-agent.removedToken" -}}
{{- dig "metadata" "annotations" "agent.atoll.dev/removed-token" "" (lookup "v1" "Secret" .Release.Namespace "atoll-agent-join") -}}
{{- end -}}

{{/* The image, by its digest where that is given. */}}
{{- define "atoll-agent.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* "true" if the member has an AgentPolicy. lookup fails for a kind that is not served. */}}
{{- define "atoll-agent.policyExists" -}}
{{- if .Capabilities.APIVersions.Has "agent.atoll.dev/v1alpha1/AgentPolicy" -}}
{{- if lookup "agent.atoll.dev/v1alpha1" "AgentPolicy" "" "agent" -}}true{{- end -}}
{{- end -}}
{{- end -}}
