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

{{- /* A value as text. A file's numbers are floats to Helm, which would say 1e+06. */ -}}
{{- define "laketx.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{- /* What `laketx serve` or its clients would refuse at their start. */ -}}
{{- define "laketx.checkService" -}}
{{- if and (include "laketx.hasIdentity" .) (not .Values.tls.secretName) -}}
{{- fail "identity.tokens, identity.oidc and identity.clientCaSecretName need TLS: set tls.secretName" -}}
{{- end -}}
{{- if and .Values.identity.tokenSecretName (not .Values.tls.secretName) -}}
{{- fail "the token of identity.tokenSecretName is sent with TLS alone: set tls.secretName" -}}
{{- end -}}
{{- if and .Values.identity.clientCaSecretName (not .Values.identity.clientCertSecretName) -}}
{{- fail "with identity.clientCaSecretName the service takes no client without a certificate: set identity.clientCertSecretName, which workers, purges and probes show" -}}
{{- end -}}
{{- if and .Values.identity.clientCertSecretName (not .Values.identity.clientCaSecretName) -}}
{{- fail "nobody asks for the certificate of identity.clientCertSecretName: set identity.clientCaSecretName" -}}
{{- end -}}
{{- if and .Values.identity.admins (not (include "laketx.hasIdentity" .)) -}}
{{- fail "identity.admins are known by what they show: set identity.tokens, identity.oidc or identity.clientCaSecretName" -}}
{{- end -}}
{{- $own := list "admins" "advertise" "backup-root" "backup-to" "console" "console-server" "data" "insecure" "listen" "metrics-listen" -}}
{{- $own = concat $own (list "oidc-audience" "oidc-groups-claim" "oidc-issuer" "oidc-name-claim" "store") -}}
{{- $own = concat $own (list "tls-cert" "tls-client-ca" "tls-key" "tokens") -}}
{{- range $option, $_ := .Values.service.settings -}}
{{- if has $option $own -}}
{{- fail (printf "service.settings.%s: the chart sets it by a value of its own" $option) -}}
{{- end -}}
{{- end -}}
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
{{- include "laketx.certificateEnv" . }}
{{- end -}}

{{- /* The certificate that clients show. */ -}}
{{- define "laketx.certificateEnv" -}}
{{- if .Values.identity.clientCertSecretName }}
- name: LAKETX_CERT_FILE
  value: /etc/laketx/client/tls.crt
- name: LAKETX_KEY_FILE
  value: /etc/laketx/client/tls.key
{{- end }}
{{- end -}}

{{- define "laketx.certificateMounts" -}}
{{- if .Values.identity.clientCertSecretName }}
- name: client-cert
  mountPath: /etc/laketx/client
  readOnly: true
{{- end }}
{{- end -}}

{{- define "laketx.certificateVolumes" -}}
{{- if .Values.identity.clientCertSecretName }}
- name: client-cert
  secret:
    secretName: {{ .Values.identity.clientCertSecretName | quote }}
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
    defaultMode: 0440
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
{{- include "laketx.certificateMounts" . }}
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
{{- include "laketx.certificateVolumes" . }}
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
{{- if and $asks $own (not .Values.identity.tokenSecretName) (not .Values.identity.clientCertSecretName) -}}
{{- fail "whoever shows the token of iceberg.tokenSecretName does what the Iceberg catalog may: set identity.tokenSecretName, which says who it is" -}}
{{- end -}}
{{- if and .Values.identity.clientCaSecretName (not $own) -}}
{{- fail "with identity.clientCaSecretName a caller without a token would be taken for the Iceberg catalog, by its certificate: set iceberg.tokenSecretName" -}}
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

{{- /* What `laketx console` would refuse at its start, or could not do. */ -}}
{{- define "laketx.checkConsole" -}}
{{- $missing := list -}}
{{- if not .Values.console.tls.secretName -}}
{{- $missing = append $missing "TLS (console.tls.secretName)" -}}
{{- end -}}
{{- if not (or .Values.identity.tokens .Values.identity.oidc.issuer) -}}
{{- $missing = append $missing "a service that asks for tokens (identity.tokens or identity.oidc)" -}}
{{- end -}}
{{- if $missing -}}
{{- fail (printf "the console is reached from other machines: it needs %s" (join " and " $missing)) -}}
{{- end -}}
{{- if .Values.identity.clientCaSecretName -}}
{{- fail "the console shows the service tokens, and no certificate: it can't be used with identity.clientCaSecretName" -}}
{{- end -}}
{{- if and .Values.console.oidc.clientId (not .Values.identity.oidc.issuer) -}}
{{- fail "console.oidc.clientId is of the provider that the service trusts: set identity.oidc" -}}
{{- end -}}
{{- if and .Values.console.oidc.clientSecretName (not .Values.console.oidc.clientId) -}}
{{- fail "console.oidc.clientSecretName is the secret of a client: set console.oidc.clientId" -}}
{{- end -}}
{{- end -}}

{{- define "laketx.consoleUrl" -}}
{{ .Values.console.publicUrl | default (printf "https://%s-console.%s.svc:%v" (include "laketx.name" .) .Release.Namespace (int64 .Values.console.port)) }}
{{- end -}}
