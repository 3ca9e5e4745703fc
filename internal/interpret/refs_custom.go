package interpret

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// places where a custom kind names what goes along with it, beside its pod templates.
type places struct {
	// pods have the fields of a pod's spec, though perhaps no containers with names.
	pods []path
	// containers have the fields of one.
	containers []path
	// names of ConfigMaps, Secrets and so on.
	names []naming
}

// naming is a place that holds a name, or an object that has one. kind "": the object says
// whether it is a ConfigMap or a Secret.
type naming struct {
	kind string
	at   path
}

func secrets(dotted ...string) []naming  { return namings("Secret", dotted) }
func accounts(dotted ...string) []naming { return namings("ServiceAccount", dotted) }

func namings(kind string, dotted []string) []naming {
	out := make([]naming, len(dotted))
	for i, d := range dotted {
		out[i] = naming{kind, at(d)}
	}
	return out
}

func joined(lists ...[]naming) (out []naming) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// workflowAt is a Workflow's spec, and what its templates run.
func workflowAt(under string) places {
	p := places{pods: all(under, under+".templates[]", under+".templates[].containerSet")}
	for _, field := range []string{"container", "script", "sidecars[]"} {
		p.containers = append(p.containers, at(under+".templates[]."+field))
	}
	p.names = namings("ConfigMap", []string{
		under + ".synchronization.semaphore.configMapKeyRef", under + ".templates[].synchronization.semaphore.configMapKeyRef"})
	return p
}

// machineAt is the spec of a virtual machine's instance.
func machineAt(under string) places {
	volume, access := under+".volumes[].", under+".accessCredentials[]."
	return places{pods: all(under), names: joined(
		secrets(volume+"cloudInitNoCloud.secretRef", volume+"cloudInitNoCloud.networkDataSecretRef",
			volume+"cloudInitConfigDrive.secretRef", volume+"cloudInitConfigDrive.networkDataSecretRef", volume+"sysprep.secret",
			access+"sshPublicKey.source.secret.secretName", access+"userPassword.source.secret.secretName"),
		namings("ConfigMap", []string{volume + "sysprep.configMap"}), accounts(volume+"serviceAccount.serviceAccountName"))}
}

// source that Flux fetches.
var source = places{names: joined(secrets("spec.secretRef", "spec.certSecretRef", "spec.proxySecretRef", "spec.verify.secretRef"), accounts("spec.serviceAccountName"))}

var sparkPlaces = places{names: joined(
	accounts("spec.driver.serviceAccount", "spec.executor.serviceAccount"),
	namings("ConfigMap", []string{"spec.sparkConfigMap", "spec.hadoopConfigMap", "spec.driver.configMaps[]", "spec.executor.configMaps[]"}),
	secrets("spec.driver.secrets[]", "spec.executor.secrets[]", "spec.imagePullSecrets[]")),
	pods: all("spec"), containers: all("spec.driver", "spec.executor")}

// referring kinds, of which pod templates do not tell all.
var referring = map[schema.GroupKind]places{
	{Group: "serving.knative.dev", Kind: "Service"}:       {pods: all("spec.template.spec")},
	{Group: "serving.knative.dev", Kind: "Configuration"}: {pods: all("spec.template.spec")},
	{Group: "serving.knative.dev", Kind: "Revision"}:      {pods: all("spec")},

	{Group: "argoproj.io", Kind: "Workflow"}:         workflowAt("spec"),
	{Group: "argoproj.io", Kind: "WorkflowTemplate"}: workflowAt("spec"),
	{Group: "argoproj.io", Kind: "CronWorkflow"}:     workflowAt("spec.workflowSpec"),

	{Group: "kubevirt.io", Kind: "VirtualMachine"}:                   machineAt("spec.template.spec"),
	{Group: "kubevirt.io", Kind: "VirtualMachineInstance"}:           machineAt("spec"),
	{Group: "kubevirt.io", Kind: "VirtualMachineInstanceReplicaSet"}: machineAt("spec.template.spec"),
	{Group: "pool.kubevirt.io", Kind: "VirtualMachinePool"}:          machineAt("spec.virtualMachineTemplate.spec.template.spec"),

	{Group: "flink.apache.org", Kind: "FlinkDeployment"}:      {names: accounts("spec.serviceAccount")},
	{Group: "sparkoperator.k8s.io", Kind: "SparkApplication"}: sparkPlaces,

	{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}: {names: joined(namings("", []string{"spec.valuesFrom[]"}),
		secrets("spec.kubeConfig.secretRef"), accounts("spec.serviceAccountName"))},
	{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}: {names: joined(namings("", []string{"spec.postBuild.substituteFrom[]"}),
		secrets("spec.decryption.secretRef", "spec.kubeConfig.secretRef"), accounts("spec.serviceAccountName"))},
	{Group: "source.toolkit.fluxcd.io", Kind: "GitRepository"}:  source,
	{Group: "source.toolkit.fluxcd.io", Kind: "OCIRepository"}:  source,
	{Group: "source.toolkit.fluxcd.io", Kind: "HelmRepository"}: source,
	{Group: "source.toolkit.fluxcd.io", Kind: "HelmChart"}:      source,
	{Group: "source.toolkit.fluxcd.io", Kind: "Bucket"}:         source,

	{Group: "postgresql.cnpg.io", Kind: "Cluster"}: {names: secrets("spec.superuserSecret", "spec.imagePullSecrets[]",
		"spec.bootstrap.initdb.secret", "spec.bootstrap.recovery.secret", "spec.bootstrap.pg_basebackup.secret")},
	{Group: "elasticsearch.k8s.elastic.co", Kind: "Elasticsearch"}: {names: joined(accounts("spec.serviceAccountName"), secrets(
		"spec.secureSettings[].secretName", "spec.auth.fileRealm[].secretName", "spec.auth.roles[].secretName", "spec.http.tls.certificate.secretName"))},
}

// referred adds what an object of one of these kinds names.
func (r refs) referred(obj map[string]any, p places) {
	for _, at := range p.pods {
		for _, v := range found(obj, at) {
			m, _ := v.(map[string]any)
			r.podSpec(m)
		}
	}
	for _, at := range p.containers {
		for _, v := range found(obj, at) {
			m, _ := v.(map[string]any)
			r.container(m)
		}
	}
	for _, n := range p.names {
		for _, v := range found(obj, n.at) {
			switch v := v.(type) {
			case string:
				r.add(n.kind, v)
			case map[string]any:
				if kind := orElse(n.kind, text(v, "kind")); n.kind != "" || kind == "ConfigMap" || kind == "Secret" {
					r.add(kind, text(v, "name"))
				}
			}
		}
	}
}

// found is all that stands at a path, in maps and in the elements of lists.
func found(v any, p path) []any {
	if len(p) == 0 {
		return []any{v}
	}
	m, _ := v.(map[string]any)
	key, isList := strings.CutSuffix(p[0], "[]")
	next, there := m[key]
	if !there {
		return nil
	}
	if !isList {
		return found(next, p[1:])
	}
	var out []any
	elements, _ := next.([]any)
	for _, e := range elements {
		out = append(out, found(e, p[1:])...)
	}
	return out
}
