package userfields_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/binder/defaulting"
	"atoll.dev/atoll/internal/userfields"
)

// liveDeployment is one that a user applied, with the API server's defaults.
const liveDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  uid: u
  resourceVersion: "5"
  generation: 1
  creationTimestamp: "2026-01-01T00:00:00Z"
  labels: {app.kubernetes.io/name: web}
  managedFields:
  - manager: kubectl
    operation: Apply
    apiVersion: apps/v1
    fieldsType: FieldsV1
    fieldsV1:
      f:metadata: {f:labels: {f:app.kubernetes.io/name: {}}}
      f:spec:
        f:replicas: {}
        f:selector: {}
        f:template:
          f:metadata: {f:labels: {f:app.kubernetes.io/name: {}}}
          f:spec:
            f:containers:
              k:{"name":"app"}:
                .: {}
                f:env:
                  k:{"name":"LISTEN"}: {.: {}, f:name: {}, f:value: {}}
                  k:{"name":"LOG_LEVEL"}: {.: {}, f:name: {}, f:value: {}}
                f:image: {}
                f:name: {}
                f:ports:
                  k:{"containerPort":8080,"protocol":"TCP"}: {.: {}, f:containerPort: {}, f:name: {}}
                f:readinessProbe: {f:httpGet: {f:path: {}, f:port: {}}}
                f:resources: {f:limits: {f:memory: {}}, f:requests: {f:cpu: {}, f:memory: {}}}
spec:
  progressDeadlineSeconds: 600
  replicas: 2
  revisionHistoryLimit: 10
  selector: {matchLabels: {app.kubernetes.io/name: web}}
  strategy: {rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}, type: RollingUpdate}
  template:
    metadata:
      labels: {app.kubernetes.io/name: web}
    spec:
      containers:
      - env: [{name: LOG_LEVEL, value: info}, {name: LISTEN, value: ":8080"}]
        image: registry.example/app:1
        imagePullPolicy: IfNotPresent
        name: app
        ports: [{containerPort: 8080, name: http, protocol: TCP}]
        readinessProbe: {failureThreshold: 3, httpGet: {path: /healthz, port: http, scheme: HTTP}, periodSeconds: 10, successThreshold: 1, timeoutSeconds: 1}
        resources: {limits: {memory: 128Mi}, requests: {cpu: 100m, memory: 64Mi}}
        terminationMessagePath: /dev/termination-log
        terminationMessagePolicy: File
      dnsPolicy: ClusterFirst
      restartPolicy: Always
      schedulerName: default-scheduler
      securityContext: {}
      terminationGracePeriodSeconds: 30
status: {}
`

func loadLiveDeployment(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(liveDeployment), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// onceDefaulter is a Defaulter that is asked about no object twice.
type onceDefaulter struct {
	userfields.Defaulter
	t         *testing.T
	defaulted map[string]bool
}

func (o *onceDefaulter) Default(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(obj.Object)
	if err != nil {
		o.t.Fatal(err)
	}
	if o.defaulted[string(text)] {
		o.t.Errorf("asked again about %s", text)
	}
	o.defaulted[string(text)] = true
	return o.Defaulter.Default(obj)
}

// Defaulting is most of what pruning costs: no object is defaulted twice, and the template
// itself stays as it is.
func TestNoObjectIsDefaultedTwice(t *testing.T) {
	obj, before := loadLiveDeployment(t), loadLiveDeployment(t)
	o := &onceDefaulter{Defaulter: defaulting.New(nil), t: t, defaulted: map[string]bool{}}
	if _, err := userfields.ExtractUserFields(obj, o); err != nil {
		t.Fatal(err)
	}
	if len(o.defaulted) == 0 || len(o.defaulted) > 3 {
		t.Errorf("%d objects were defaulted, want two or three", len(o.defaulted))
	}
	if !equalJSON(t, obj.Object, before.Object) {
		t.Error("the template was changed")
	}
}

// partDefaulter is a Defaulter of a kind without defaults. It is never given both fields.
type partDefaulter struct {
	t     *testing.T
	calls int
}

func (d *partDefaulter) Default(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	d.calls++
	if spec, _ := obj.Object["spec"].(map[string]any); spec["size"] != nil && spec["color"] != nil {
		d.t.Errorf("asked about a complete object: %v", obj.Object)
	}
	return obj, nil
}

// The object with all its fields is not defaulted: nothing is left out that defaults could fill in.
func TestACompleteObjectIsNotDefaulted(t *testing.T) {
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: x.dev/v1
kind: Widget
metadata:
  name: w
  namespace: shop
  managedFields:
  - {manager: kubectl-create, operation: Update, apiVersion: x.dev/v1, fieldsType: FieldsV1, fieldsV1: {f:spec: {f:color: {}, f:size: {}}}}
spec: {color: red, size: large}
`), &obj.Object); err != nil {
		t.Fatal(err)
	}
	d := &partDefaulter{t: t}
	got, err := userfields.ExtractUserFields(obj, d)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"apiVersion":"x.dev/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop"},"spec":{"color":"red","size":"large"}}`; string(got) != want {
		t.Errorf("the user's fields are %s, want %s", got, want)
	}
	if d.calls != 3 { // without both fields, and without each
		t.Errorf("%d objects were defaulted, want 3", d.calls)
	}
}

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	return err == nil && string(x) == string(y)
}
