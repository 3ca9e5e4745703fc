package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/lab/bench/measure"
	"atoll.dev/atoll/lab/bench/verify"
	"atoll.dev/atoll/lab/fleet"
)

const (
	// perNamespace is how many applications share a namespace.
	perNamespace = 10
	// fieldManager applies the objects of a scenario, as a user does.
	fieldManager   = "kubectl"
	replicasPerApp = 2
)

// application is one Deployment and the policy that places it onto the clusters of one
// group.
type application struct {
	namespace, name string
	// group is the group of clusters, 0 to groups-1; negative means all clusters.
	group int
	image string
}

// newApplications returns count applications, spread over the groups in turn.
func (s *testbed) newApplications(prefix string, count int) []application {
	all := make([]application, count)
	for i := range all {
		all[i] = application{
			namespace: fmt.Sprintf("%s-%d", prefix, i/perNamespace),
			name:      fmt.Sprintf("%s-%d", prefix, i),
			group:     i % s.fleets[0].groups,
			image:     "registry.example/app:1",
		}
	}
	return all
}

func (a application) bundleKey() string { return a.namespace + "/" + a.name }

// deploymentJSON returns a realistic Deployment: with resources, a probe and some
// environment.
func (a application) deploymentJSON() []byte {
	return mustEncodeJSON(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": a.name, "namespace": a.namespace, "labels": map[string]any{"app.kubernetes.io/name": a.name}},
		"spec": map[string]any{
			"replicas": replicasPerApp,
			"selector": map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/name": a.name}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app.kubernetes.io/name": a.name}},
				"spec": map[string]any{"containers": []any{map[string]any{
					"name": "app", "image": a.image,
					"ports":          []any{map[string]any{"containerPort": 8080, "name": "http"}},
					"env":            []any{map[string]any{"name": "LOG_LEVEL", "value": "info"}, map[string]any{"name": "LISTEN", "value": ":8080"}},
					"resources":      map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "64Mi"}, "limits": map[string]any{"memory": "128Mi"}},
					"readinessProbe": map[string]any{"httpGet": map[string]any{"path": "/healthz", "port": "http"}},
				}}},
			},
		},
	})
}

// placementSpec returns the placement of the application's policy.
func (a application) placementSpec() map[string]any {
	if a.group < 0 {
		return map[string]any{}
	}
	return map[string]any{"clusterAffinity": map[string]any{
		"labelSelector": map[string]any{"matchLabels": map[string]any{"group": groupLabel(a.group)}},
	}}
}

func (a application) policyJSON() []byte {
	return mustEncodeJSON(map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "PropagationPolicy",
		"metadata": map[string]any{"name": a.name, "namespace": a.namespace},
		"spec": map[string]any{
			"resourceSelectors": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": a.name}},
			"placement":         a.placementSpec(),
			"rollout":           map[string]any{"type": "All"}, // an edit is one wave
		},
	})
}

// groupLabel is the value of the label by which the simulator's tokens mark a group.
func groupLabel(group int) string { return fmt.Sprintf("g%d", group) }

func mustEncodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("scenario: %T is made of plain values: %v", v, err))
	}
	return b
}

// wantedApp returns the expected final state of the application.
func (a application) wantedApp() verify.WantedApp {
	e := verify.WantedApp{Namespace: a.namespace, Policy: a.name, Deployment: a.name, Replicas: replicasPerApp, Items: 1, Mark: fleet.ObjectsChecksum(a.deploymentJSON())}
	if a.group >= 0 {
		label := groupLabel(a.group)
		e.In = func(labels map[string]string) bool { return labels["group"] == label }
	}
	return e
}

func wantedApps(apps []application) []verify.WantedApp {
	all := make([]verify.WantedApp, len(apps))
	for i, a := range apps {
		all[i] = a.wantedApp()
	}
	return all
}

// apply applies one object as `kubectl apply --server-side` does.
func (s *testbed) apply(ctx context.Context, path string, body []byte) error {
	err := s.kube.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(path).
		Param("fieldManager", fieldManager).Param("force", "true").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("apply %s: %w", path, err)
	}
	return nil
}

func (s *testbed) applyDeployment(ctx context.Context, a application) error {
	return s.apply(ctx, "/apis/apps/v1/namespaces/"+a.namespace+"/deployments/"+a.name, a.deploymentJSON())
}

func (s *testbed) applyPolicy(ctx context.Context, a application) error {
	return s.apply(ctx, "/apis/atoll.dev/v1alpha1/namespaces/"+a.namespace+"/propagationpolicies/"+a.name, a.policyJSON())
}

// applyApp applies the Deployment and then its policy, in the order of a file.
func (s *testbed) applyApp(ctx context.Context, a application) error {
	if err := s.applyDeployment(ctx, a); err != nil {
		return err
	}
	return s.applyPolicy(ctx, a)
}

// expectedUserWrites returns the user's own writes for that many applications.
func expectedUserWrites(apps int) measure.WriteCounts {
	return measure.WriteCounts{"APPLY deployments": float64(apps), "APPLY propagationpolicies": float64(apps)}
}

// makeNamespaces creates the namespaces of the applications unless they exist.
func (s *testbed) makeNamespaces(ctx context.Context, apps []application) error {
	for i, a := range apps {
		if i > 0 && apps[i-1].namespace == a.namespace {
			continue
		}
		_, err := s.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make namespace %s: %w", a.namespace, err)
		}
	}
	return nil
}

// parallelUsers is the number of users that apply at the same time.
const parallelUsers = 8

// applyAll applies the applications, some at a time.
func (s *testbed) applyAll(ctx context.Context, what string, apps []application) error {
	if err := s.makeNamespaces(ctx, apps); err != nil {
		return err
	}
	s.Progress.BeginStep(what, len(apps))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelUsers)
	var done atomic.Int64
	for _, a := range apps {
		group.Go(func() error {
			err := s.applyApp(ctx, a)
			s.Progress.SetDone(int(done.Add(1)))
			return err
		})
	}
	return group.Wait()
}
