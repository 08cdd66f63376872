{{- /* Gives the account a role: (list $ NAME). */ -}}
{{- define "node-tracer.binding" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels:
    app.kubernetes.io/name: node-tracer
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: node-tracer
    namespace: {{ $root.Release.Namespace }}
{{- end }}

{{- /* An unquoted off is false in YAML. */ -}}
{{- define "node-tracer.kube-events" -}}
{{- if and .Values.kubeEvents (ne (toString .Values.kubeEvents) "off") -}}
{{ .Values.kubeEvents }}
{{- end -}}
{{- end }}

{{- /* The image, by its digest where that is known. */ -}}
{{- define "node-tracer.image" -}}
{{- with .Values.image -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{- /* The arguments, as a list of YAML on one line. */ -}}
{{- define "node-tracer.args" -}}
[trace, --root, /host, -o, json
{{- with .Values.metrics }}
{{- if .enabled }}, --metrics, "0.0.0.0:{{ .port }}"{{ if .findings }}, --metrics-findings{{ end }}{{ end }}
{{- end }}
{{- with include "node-tracer.kube-events" . }}, --kube-events{{ if ne . "all" }}={{ . }}{{ end }}{{ end }}
{{- if .Values.nodeCondition }}, --node-condition{{ end }}, --seal-root, --heartbeat, /run/node-tracer/alive
{{- range .Values.extraArgs }}, {{ . | quote }}{{ end }}]
{{- end }}
