package objectversions

import (
	"fmt"
	json "k8s.io/apimachinery/pkg/util/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func parseObject(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestListVersions(t *testing.T) {
	for gk, want := range map[schema.GroupKind][]string{
		{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: {"autoscaling/v2", "autoscaling/v1"},
		{Group: "policy", Kind: "PodDisruptionBudget"}:          {"policy/v1", "policy/v1beta1"},
		{Group: "batch", Kind: "CronJob"}:                       {"batch/v1", "batch/v1beta1"},
		{Group: "apps", Kind: "Deployment"}:                     nil, // v1beta1 and v1beta2 went with Kubernetes 1.16
		{Group: "", Kind: "ConfigMap"}:                          nil,
		{Group: "example.com", Kind: "Widget"}:                  nil,
	} {
		if got := (Converter{}).ListVersions(gk); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", gk, got, want)
		}
	}
}

const autoscaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  maxReplicas: 9
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
`

const cronJob = `
apiVersion: batch/v1
kind: CronJob
metadata: {name: report, namespace: shop, labels: {app: report}}
spec:
  schedule: "@daily"
  suspend: false
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: "example.com/report:1"}]
          volumes: [{name: tmp, emptyDir: {}}]
`

func TestConvertObject(t *testing.T) {
	for name, c := range map[string]struct{ object, to, want string }{
		"an autoscaler": {autoscaler + `
  minReplicas: 2
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}]
`, "autoscaling/v1", `
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  maxReplicas: 9
  minReplicas: 2
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  targetCPUUtilizationPercentage: 70
`},
		"an autoscaler without metrics":                   {autoscaler, "autoscaling/v1", strings.Replace(autoscaler, "/v2", "/v1", 1)},
		"an older cron job, with empty values that count": {cronJob, "batch/v1beta1", strings.Replace(cronJob, "/v1", "/v1beta1", 1)},
		"a budget of all pods, which the older version states in another way": {`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 1, selector: {}}
`, "policy/v1beta1", `
apiVersion: policy/v1beta1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 1, selector: {matchExpressions: [{key: pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match, operator: DoesNotExist}]}}
`},
		"a budget": {`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {minAvailable: 50%, selector: {matchLabels: {app: web}}}
`, "policy/v1beta1", `
apiVersion: policy/v1beta1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {minAvailable: 50%, selector: {matchLabels: {app: web}}}
`},
	} {
		t.Run(name, func(t *testing.T) {
			object := parseObject(t, c.object)
			got, err := Converter{}.ConvertObject(object, c.to)
			if err != nil || !reflect.DeepEqual(got, parseObject(t, c.want)) {
				t.Errorf("got %v, %v", got, err)
			}
			if !reflect.DeepEqual(object, parseObject(t, c.object)) {
				t.Error("the argument changed")
			}
		})
	}
}

// The API server writes annotations where the other version has no field.
func TestFieldsOfOneVersionAreAnnotationsInTheOther(t *testing.T) {
	object := parseObject(t, autoscaler+`
  minReplicas: 2
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}
  - {type: Pods, pods: {metric: {name: requests}, target: {type: AverageValue, averageValue: "1500m"}}}
  behavior: {scaleDown: {stabilizationWindowSeconds: 60}}
`)
	there, err := Converter{}.ConvertObject(object, "autoscaling/v1")
	if err != nil || there["apiVersion"] != "autoscaling/v1" {
		t.Fatalf("got %v, %v", there, err)
	}
	annotations, _ := there["metadata"].(map[string]any)["annotations"].(map[string]any)
	if len(annotations) != 2 {
		t.Errorf("annotations %v, want one of the second metric and one of the behavior", annotations)
	}
	spec, _ := there["spec"].(map[string]any)
	if spec["targetCPUUtilizationPercentage"] != int64(70) || spec["minReplicas"] != int64(2) || spec["metrics"] != nil || spec["behavior"] != nil {
		t.Errorf("spec %v", spec)
	}
}

func TestConvertObjectNamesLosses(t *testing.T) {
	for name, c := range map[string]struct{ object, to, want string }{
		"a field of no version": {autoscaler + "  speed: 5\n", "autoscaling/v1", `cannot be converted to: unknown field "spec.speed"`},
		"another group":         {autoscaler, "apps/v1", "is of another group"},
		"a kind without a type": {"apiVersion: example.com/v1\nkind: Widget\n", "example.com/v2", "cannot be read: "},
		"a version without it":  {autoscaler, "autoscaling/v9", "cannot be converted to: "},
		"a malformed field":     {strings.Replace(autoscaler, "9", "many", 1), "autoscaling/v1", "cannot be converted to: "},
	} {
		got, err := Converter{}.ConvertObject(parseObject(t, c.object), c.to)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// An object of many or long unknown fields must not fill the texts that are stored for each cluster.
func TestErrorsAreBounded(t *testing.T) {
	many, long := parseObject(t, autoscaler), parseObject(t, autoscaler)
	for i := range 5000 {
		many["spec"].(map[string]any)[fmt.Sprintf("unknown%d", i)] = int64(1)
	}
	long["spec"].(map[string]any)[strings.Repeat("x", 100_000)] = int64(1)
	for name, object := range map[string]map[string]any{"many": many, "long": long} {
		_, err := Converter{}.ConvertObject(object, "autoscaling/v1")
		if err == nil || len(err.Error()) > 1200 {
			t.Errorf("%s: an error of %d bytes", name, len(fmt.Sprint(err)))
		}
	}
	_, err := Converter{}.ConvertObject(many, "autoscaling/v1")
	if err == nil || !strings.Contains(err.Error(), `unknown field "spec.unknown0"`) || !strings.Contains(err.Error(), "4995 more") {
		t.Errorf("got %v", err)
	}
}
