package pods

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
)

func TestSelectorOf(t *testing.T) {
	for text, want := range map[string]string{
		"{kind: Deployment, spec: {selector: {matchLabels: {app: web, tier: a}}}}":                                    "app=web,tier=a",
		"{kind: ReplicaSet, spec: {selector: {matchExpressions: [{key: app, operator: In, values: [a, b]}]}}}":        "app in (a,b)",
		"{kind: Service, spec: {selector: {app: web}}}":                                                               "app=web",
		"{apiVersion: batch/v1, kind: Job, metadata: {name: once}, spec: {selector: {matchLabels: {uid: x}}}}":        "batch.kubernetes.io/job-name=once",
		"{kind: ConfigMap, metadata: {name: c}}":                                                                      "ConfigMap c selects no pods: it has no spec.selector; pods are selected with -l",
		"{kind: Odd, metadata: {name: o}, spec: {selector: {app: [1]}}}":                                              "Odd o: its spec.selector is no selector of pods; pods are selected with -l",
		"{kind: Deployment, metadata: {name: d}, spec: {selector: {matchExpressions: [{key: a, operator: Nearly}]}}}": `Deployment d: its spec.selector: "Nearly" is not a valid label selector operator`,
	} {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		got, err := SelectorOf(u)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, wanted %q", text, got, want)
		}
	}
}

func TestPrefixesNameClusterPodAndContainer(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1.tokyo", Labels: map[string]string{atoll.LabelCluster: "tokyo"}}}
	if got := LogLinePrefix(pod, "main"); got != "[tokyo/web-1 main]" {
		t.Errorf("the prefix is %s", got)
	}
	pod.Labels = nil
	if got := LogLinePrefix(pod, "main"); got != "[web-1.tokyo main]" {
		t.Errorf("the prefix of a template is %s", got)
	}
}

func TestContainerThatIsMeant(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}}, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	for _, c := range []struct{ annotation, named, want string }{
		{"", "", "a"}, {"b", "", "b"}, {"gone", "", "a"}, {"b", "a", "a"}, {"", "init", "init"}, {"", "debug", "debug"}, {"", "x", "has no container"},
	} {
		pod.Annotations = map[string]string{annotationContainer: c.annotation}
		got, err := ChooseContainer(pod, c.named)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("annotation %q, named %q: %q, wanted %q", c.annotation, c.named, got, c.want)
		}
	}
}
