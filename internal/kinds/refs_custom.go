package kinds

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// referenceFields are the fields of a custom kind that reference dependencies, besides its pod
// templates.
type referenceFields struct {
	// pods have the fields of a pod spec, perhaps without named containers.
	pods []fieldPath
	// containers have the fields of a container.
	containers []fieldPath
	// names of ConfigMaps, Secrets and ServiceAccounts.
	names []nameField
}

// nameField is a field that holds a name, or an object with a name. With an empty kind, the object
// states whether it is a ConfigMap or a Secret.
type nameField struct {
	kind string
	path fieldPath
}

func secretFields(dotted ...string) []nameField         { return nameFields("Secret", dotted) }
func serviceAccountFields(dotted ...string) []nameField { return nameFields("ServiceAccount", dotted) }

func nameFields(kind string, dotted []string) []nameField {
	out := make([]nameField, len(dotted))
	for i, d := range dotted {
		out[i] = nameField{kind, parsePath(d)}
	}
	return out
}

func concatNameFields(lists ...[]nameField) (out []nameField) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// workflowReferences returns the fields of a Workflow spec and its templates.
func workflowReferences(under string) referenceFields {
	p := referenceFields{pods: parsePaths(under, under+".templates[]", under+".templates[].containerSet")}
	for _, field := range []string{"container", "script", "sidecars[]"} {
		p.containers = append(p.containers, parsePath(under+".templates[]."+field))
	}
	p.names = nameFields("ConfigMap", []string{
		under + ".synchronization.semaphore.configMapKeyRef", under + ".templates[].synchronization.semaphore.configMapKeyRef"})
	return p
}

// virtualMachineReferences returns the fields of a virtual machine instance's spec.
func virtualMachineReferences(under string) referenceFields {
	volume, access := under+".volumes[].", under+".accessCredentials[]."
	return referenceFields{pods: parsePaths(under), names: concatNameFields(
		secretFields(volume+"cloudInitNoCloud.secretRef", volume+"cloudInitNoCloud.networkDataSecretRef",
			volume+"cloudInitConfigDrive.secretRef", volume+"cloudInitConfigDrive.networkDataSecretRef", volume+"sysprep.secret",
			access+"sshPublicKey.source.secret.secretName", access+"userPassword.source.secret.secretName"),
		nameFields("ConfigMap", []string{volume + "sysprep.configMap"}), serviceAccountFields(volume+"serviceAccount.serviceAccountName"))}
}

// fluxSourceReferences are the fields of a source that Flux fetches.
var fluxSourceReferences = referenceFields{names: concatNameFields(secretFields("spec.secretRef", "spec.certSecretRef", "spec.proxySecretRef", "spec.verify.secretRef"), serviceAccountFields("spec.serviceAccountName"))}

var sparkReferences = referenceFields{names: concatNameFields(
	serviceAccountFields("spec.driver.serviceAccount", "spec.executor.serviceAccount"),
	nameFields("ConfigMap", []string{"spec.sparkConfigMap", "spec.hadoopConfigMap", "spec.driver.configMaps[]", "spec.executor.configMaps[]"}),
	secretFields("spec.driver.secrets[]", "spec.executor.secrets[]", "spec.imagePullSecrets[]")),
	pods: parsePaths("spec"), containers: parsePaths("spec.driver", "spec.executor")}

// customReferences are the kinds with references besides their pod templates.
var customReferences = map[schema.GroupKind]referenceFields{
	{Group: "serving.knative.dev", Kind: "Service"}:       {pods: parsePaths("spec.template.spec")},
	{Group: "serving.knative.dev", Kind: "Configuration"}: {pods: parsePaths("spec.template.spec")},
	{Group: "serving.knative.dev", Kind: "Revision"}:      {pods: parsePaths("spec")},

	{Group: "argoproj.io", Kind: "Workflow"}:         workflowReferences("spec"),
	{Group: "argoproj.io", Kind: "WorkflowTemplate"}: workflowReferences("spec"),
	{Group: "argoproj.io", Kind: "CronWorkflow"}:     workflowReferences("spec.workflowSpec"),

	{Group: "kubevirt.io", Kind: "VirtualMachine"}:                   virtualMachineReferences("spec.template.spec"),
	{Group: "kubevirt.io", Kind: "VirtualMachineInstance"}:           virtualMachineReferences("spec"),
	{Group: "kubevirt.io", Kind: "VirtualMachineInstanceReplicaSet"}: virtualMachineReferences("spec.template.spec"),
	{Group: "pool.kubevirt.io", Kind: "VirtualMachinePool"}:          virtualMachineReferences("spec.virtualMachineTemplate.spec.template.spec"),

	{Group: "flink.apache.org", Kind: "FlinkDeployment"}:      {names: serviceAccountFields("spec.serviceAccount")},
	{Group: "sparkoperator.k8s.io", Kind: "SparkApplication"}: sparkReferences,

	{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}: {names: concatNameFields(nameFields("", []string{"spec.valuesFrom[]"}),
		secretFields("spec.kubeConfig.secretRef", "spec.chart.spec.verify.secretRef"), serviceAccountFields("spec.serviceAccountName"))},
	{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}: {names: concatNameFields(nameFields("", []string{"spec.postBuild.substituteFrom[]"}),
		secretFields("spec.decryption.secretRef", "spec.kubeConfig.secretRef"), serviceAccountFields("spec.serviceAccountName"))},
	{Group: "source.toolkit.fluxcd.io", Kind: "GitRepository"}:  fluxSourceReferences,
	{Group: "source.toolkit.fluxcd.io", Kind: "OCIRepository"}:  fluxSourceReferences,
	{Group: "source.toolkit.fluxcd.io", Kind: "HelmRepository"}: fluxSourceReferences,
	{Group: "source.toolkit.fluxcd.io", Kind: "HelmChart"}:      fluxSourceReferences,
	{Group: "source.toolkit.fluxcd.io", Kind: "Bucket"}:         fluxSourceReferences,

	{Group: "postgresql.cnpg.io", Kind: "Cluster"}: {names: secretFields("spec.superuserSecret", "spec.imagePullSecrets[]",
		"spec.bootstrap.initdb.secret", "spec.bootstrap.recovery.secret", "spec.bootstrap.pg_basebackup.secret")},
	{Group: "elasticsearch.k8s.elastic.co", Kind: "Elasticsearch"}: {names: concatNameFields(serviceAccountFields("spec.serviceAccountName"), secretFields(
		"spec.secureSettings[].secretName", "spec.auth.fileRealm[].secretName", "spec.auth.roles[].secretName", "spec.http.tls.certificate.secretName"))},
}

// addCustomReferences adds the references in these fields of an object.
func (r referenceSet) addCustomReferences(obj map[string]any, p referenceFields) {
	for _, at := range p.pods {
		for _, v := range valuesAtPath(obj, at) {
			m, _ := v.(map[string]any)
			r.addPodSpecReferences(m)
		}
	}
	for _, at := range p.containers {
		for _, v := range valuesAtPath(obj, at) {
			m, _ := v.(map[string]any)
			r.addContainerReferences(m)
		}
	}
	for _, n := range p.names {
		for _, v := range valuesAtPath(obj, n.path) {
			switch v := v.(type) {
			case string:
				r.addReference(n.kind, v)
			case map[string]any:
				if kind := orElse(n.kind, stringField(v, "kind")); n.kind != "" || kind == "ConfigMap" || kind == "Secret" {
					r.addReference(kind, stringField(v, "name"))
				}
			}
		}
	}
}

// valuesAtPath returns all values at a path, in maps and in the elements of lists.
func valuesAtPath(v any, p fieldPath) []any {
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
		return valuesAtPath(next, p[1:])
	}
	var out []any
	elements, _ := next.([]any)
	for _, e := range elements {
		out = append(out, valuesAtPath(e, p[1:])...)
	}
	return out
}
