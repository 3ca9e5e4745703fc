package kinds_test

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/kinds"
)

// References in fields of custom kinds are dependencies.
func TestDependenciesOfCustomKinds(t *testing.T) {
	for _, c := range []struct{ name, object, want string }{
		{"container that Knative names", headYAML("serving.knative.dev/v1", "Service") + "spec: {template: {spec: {serviceAccountName: runner, containers: [{image: x, envFrom: [{secretRef: {name: keys}}]}]}}}",
			"Secret/keys ServiceAccount/runner"},
		{"workflow", headYAML("argoproj.io/v1alpha1", "Workflow") + "spec: {serviceAccountName: runner, volumes: [{name: v, secret: {secretName: keys}}, {name: w, configMap: {name: '{{workflow.name}}'}}], synchronization: {semaphore: {configMapKeyRef: {name: turns}}}, " +
			"templates: [{name: a, container: {image: x, envFrom: [{configMapRef: {name: a}}]}}, {name: b, script: {env: [{name: X, valueFrom: {secretKeyRef: {name: b}}}]}}, {name: c, containerSet: {containers: [{name: c, envFrom: [{configMapRef: {name: c}}]}]}, sidecars: [{name: d, envFrom: [{secretRef: {name: d}}]}]}]}",
			"ConfigMap/a ConfigMap/c ConfigMap/turns Secret/b Secret/d Secret/keys ServiceAccount/runner"},
		{"workflow by the clock", headYAML("argoproj.io/v1alpha1", "CronWorkflow") + "spec: {workflowSpec: {serviceAccountName: runner}}", "ServiceAccount/runner"},
		{"virtual machine", headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {template: {spec: {accessCredentials: [{sshPublicKey: {source: {secret: {secretName: ssh}}}}], volumes: [{name: a, cloudInitNoCloud: {secretRef: {name: init}}}, {name: b, configMap: {name: conf}}, {name: c, persistentVolumeClaim: {claimName: disk}}, {name: d, serviceAccount: {serviceAccountName: runner}}]}}}",
			"ConfigMap/conf PersistentVolumeClaim/disk Secret/init Secret/ssh ServiceAccount/runner"},
		{"flink", headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {serviceAccount: flink}", "ServiceAccount/flink"},
		{"spark", headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {sparkConfigMap: conf, imagePullSecrets: [pull], driver: {serviceAccount: spark, secrets: [{name: keys, path: /x}]}, executor: {envFrom: [{configMapRef: {name: env}}]}}",
			"ConfigMap/conf ConfigMap/env Secret/keys Secret/pull ServiceAccount/spark"},
		{"helm release", headYAML("helm.toolkit.fluxcd.io/v2", "HelmRelease") + "spec: {valuesFrom: [{kind: Secret, name: a}, {kind: ConfigMap, name: b}, {kind: Other, name: c}], kubeConfig: {secretRef: {name: kube}}, chart: {spec: {chart: web, verify: {provider: cosign, secretRef: {name: keys}}}}}",
			"ConfigMap/b Secret/a Secret/keys Secret/kube"},
		{"helm release, its chart is verified without a key", headYAML("helm.toolkit.fluxcd.io/v2", "HelmRelease") + "spec: {chart: {spec: {chart: web, verify: {provider: cosign}}}}", ""},
		{"git repository", headYAML("source.toolkit.fluxcd.io/v1", "GitRepository") + "spec: {secretRef: {name: git}}", "Secret/git"},
		{"postgres", headYAML("postgresql.cnpg.io/v1", "Cluster") + "spec: {superuserSecret: {name: su}, bootstrap: {initdb: {secret: {name: owner}}}}", "Secret/owner Secret/su"},
		{"elasticsearch", headYAML("elasticsearch.k8s.elastic.co/v1", "Elasticsearch") + "spec: {secureSettings: [{secretName: s3}], auth: {fileRealm: [{secretName: users}]}}", "Secret/s3 Secret/users"},
		{"of wrong shape", headYAML("helm.toolkit.fluxcd.io/v2", "HelmRelease") + "spec: {valuesFrom: {kind: Secret}, kubeConfig: [1]}", ""},
	} {
		var got []string
		for _, k := range kinds.DependenciesOf(parseObject(t, c.object)) {
			got = append(got, k.Kind+"/"+k.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %s, want %s", c.name, strings.Join(got, " "), c.want)
		}
	}
}
