{{- define "laketx.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "laketx.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "laketx.selector" . }}
{{- end -}}

{{- define "laketx.selector" -}}
app.kubernetes.io/name: laketx
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "laketx.image" -}}
{{- $tag := .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{- if hasPrefix "sha256:" $tag -}}{{ .image }}@{{ $tag }}{{- else -}}{{ .image }}:{{ $tag }}{{- end -}}
{{- end -}}

{{- define "laketx.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "laketx.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "laketx.warehouse" -}}
{{ required "storage.warehouse says where the tables' files lie, such as s3a://bucket/lake" .Values.storage.warehouse }}
{{- end -}}

{{- define "laketx.storageSecret" -}}
{{- if .Values.storage.secretName -}}
{{ .Values.storage.secretName }}
{{- else if .Values.storage.accessKey -}}
{{ include "laketx.name" . }}-storage
{{- end -}}
{{- end -}}

{{- define "laketx.host" -}}
{{ include "laketx.name" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{- /* The service whose names are those of the pods: there is one for each, whether it takes calls or not. */ -}}
{{- define "laketx.pods" -}}
{{ include "laketx.name" . }}-pods
{{- end -}}

{{- /* Where clients find the service: of several replicas all, for the leader may be any of them. */ -}}
{{- define "laketx.server" -}}
{{- if .Values.tls.secretName -}}laketxs://{{- end -}}
{{- if .Values.service.store -}}
{{- range $number := until (int .Values.service.replicas) -}}
{{- if $number }},{{ end -}}
{{ include "laketx.name" $ }}-{{ $number }}.{{ include "laketx.pods" $ }}.{{ $.Release.Namespace }}.svc:{{ $.Values.service.port }}
{{- end -}}
{{- else -}}
{{ include "laketx.host" . }}:{{ .Values.service.port }}
{{- end -}}
{{- end -}}

{{- define "laketx.hasIdentity" -}}
{{- if or .Values.identity.tokens .Values.identity.oidc.issuer .Values.identity.clientCaSecretName -}}true{{- end -}}
{{- end -}}

{{- define "laketx.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "laketx.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* What workers and purges know of the service and of storage. */ -}}
{{- define "laketx.clientEnv" -}}
{{ include "laketx.placesEnv" . }}
{{- if .Values.identity.tokenSecretName }}
- name: LAKETX_TOKEN_FILE
  value: /etc/laketx/token/token
{{- end }}
{{- end -}}

{{- /* The same without who they are. */ -}}
{{- define "laketx.placesEnv" -}}
- name: LAKETX_SERVER
  value: {{ include "laketx.server" . | quote }}
- name: LAKETX_WAREHOUSE
  value: {{ include "laketx.warehouse" . | quote }}
{{- if .Values.tls.secretName }}
- name: LAKETX_CA_FILE
  value: /etc/laketx/tls/ca.crt
{{- end }}
- name: LAKETX_S3_PATH_STYLE
  value: {{ .Values.storage.pathStyle | quote }}
{{ include "laketx.storageEnv" (dict "root" . "secret" (include "laketx.storageSecret" .)) }}
{{- end -}}

{{- define "laketx.storageEnv" -}}
- name: AWS_REGION
  value: {{ .root.Values.storage.region | quote }}
{{- with .root.Values.storage.endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- with .secret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: {name: {{ . | quote }}, key: AWS_ACCESS_KEY_ID}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ . | quote }}, key: AWS_SECRET_ACCESS_KEY}
{{- end }}
{{- end -}}

{{- define "laketx.clientMounts" -}}
{{ include "laketx.placesMounts" . }}
{{- if .Values.identity.tokenSecretName }}
- name: token
  mountPath: /etc/laketx/token
  readOnly: true
{{- end }}
{{- end -}}

{{- define "laketx.placesMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.tls.secretName }}
- name: tls
  mountPath: /etc/laketx/tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "laketx.clientVolumes" -}}
{{ include "laketx.placesVolumes" . }}
{{- if .Values.identity.tokenSecretName }}
- name: token
  secret:
    secretName: {{ .Values.identity.tokenSecretName | quote }}
    items: [{key: token, path: token}]
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "laketx.placesVolumes" -}}
{{- if .Values.tls.secretName }}
- name: tls
  secret:
    secretName: {{ .Values.tls.secretName | quote }}
    items: [{key: ca.crt, path: ca.crt}]
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- /* What `laketx iceberg serve` would refuse at its start, or could not do. */ -}}
{{- define "laketx.checkIceberg" -}}
{{- $asks := or .Values.identity.tokens (not (empty .Values.identity.oidc.issuer)) -}}
{{- $own := .Values.iceberg.tokenSecretName -}}
{{- $missing := list -}}
{{- if not .Values.iceberg.tls.secretName -}}
{{- $missing = append $missing "TLS (iceberg.tls.secretName)" -}}
{{- end -}}
{{- if not (or $own $asks) -}}
{{- $missing = append $missing "a way to know who calls (iceberg.tokenSecretName, or identity.tokens or identity.oidc)" -}}
{{- end -}}
{{- if and $missing (not .Values.iceberg.insecure) -}}
{{- fail (printf "the Iceberg catalog is reached from other machines: it needs %s, or iceberg.insecure on a network whose every machine may read and write all tables" (join " and " $missing)) -}}
{{- end -}}
{{- if and $asks (not .Values.tls.secretName) -}}
{{- fail "the Iceberg catalog sends tokens to the service with TLS alone: set tls.secretName" -}}
{{- end -}}
{{- if and $asks $own (not .Values.identity.tokenSecretName) -}}
{{- fail "whoever shows the token of iceberg.tokenSecretName does what the Iceberg catalog may: set identity.tokenSecretName, which says who it is" -}}
{{- end -}}
{{- if .Values.identity.clientCaSecretName -}}
{{- fail "with identity.clientCaSecretName the service takes no client without a certificate, and the Iceberg catalog has none" -}}
{{- end -}}
{{- end -}}

{{- /* Where clients find the files of storage; values go first. */ -}}
{{- define "laketx.icebergClientConfig" -}}
{{- $found := dict -}}
{{- with .Values.storage.endpoint -}}
{{- $found = dict "s3.endpoint" . "client.region" $.Values.storage.region -}}
{{- if $.Values.storage.pathStyle -}}
{{- $_ := set $found "s3.path-style-access" "true" -}}
{{- end -}}
{{- end -}}
{{- toYaml (merge dict .Values.iceberg.clientConfig $found) -}}
{{- end -}}

{{- define "laketx.icebergUrl" -}}
{{ ternary "https" "http" (not (empty .Values.iceberg.tls.secretName)) }}://{{ include "laketx.name" . }}-iceberg.{{ .Release.Namespace }}.svc:{{ .Values.iceberg.port }}
{{- end -}}
