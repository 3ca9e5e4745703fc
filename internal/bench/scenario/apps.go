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

	"atoll.dev/atoll/internal/bench/measure"
	"atoll.dev/atoll/internal/bench/truth"
	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	// perNamespace is how many applications share a namespace.
	perNamespace = 10
	// fieldManager of what a scenario applies, as a user does.
	fieldManager = "kubectl"
	replicas     = 2
)

// app is an application: one Deployment, and the policy that places it onto the
// clusters of one group.
type app struct {
	namespace, name string
	// group of clusters, 0 to groups-1; all of them if negative.
	group int
	image string
}

// apps makes so many applications, spread over the groups in turn.
func (s *stage) apps(prefix string, count int) []app {
	all := make([]app, count)
	for i := range all {
		all[i] = app{
			namespace: fmt.Sprintf("%s-%d", prefix, i/perNamespace),
			name:      fmt.Sprintf("%s-%d", prefix, i),
			group:     i % s.fleets[0].groups,
			image:     "registry.example/app:1",
		}
	}
	return all
}

func (a app) key() string { return a.namespace + "/" + a.name }

// deployment as people write them: with resources, a probe and some environment.
func (a app) deployment() []byte {
	return encode(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": a.name, "namespace": a.namespace, "labels": map[string]any{"app.kubernetes.io/name": a.name}},
		"spec": map[string]any{
			"replicas": replicas,
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

// placement of the application's policy.
func (a app) placement() map[string]any {
	if a.group < 0 {
		return map[string]any{}
	}
	return map[string]any{"clusterAffinity": map[string]any{
		"labelSelector": map[string]any{"matchLabels": map[string]any{"group": groupLabel(a.group)}},
	}}
}

func (a app) policy() []byte {
	return encode(map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "PropagationPolicy",
		"metadata": map[string]any{"name": a.name, "namespace": a.namespace},
		"spec": map[string]any{
			"resourceSelectors": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": a.name}},
			"placement":         a.placement(),
		},
	})
}

// groupLabel is the value of the label by which the simulator's tokens mark a group.
func groupLabel(group int) string { return fmt.Sprintf("g%d", group) }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("scenario: %T is made of plain values: %v", v, err))
	}
	return b
}

// expectation is what has to be true of the application in the end.
func (a app) expectation() truth.App {
	e := truth.App{Namespace: a.namespace, Policy: a.name, Deployment: a.name, Replicas: replicas, Items: 1, Mark: fleet.MarkOf(a.deployment())}
	if a.group >= 0 {
		label := groupLabel(a.group)
		e.In = func(labels map[string]string) bool { return labels["group"] == label }
	}
	return e
}

func expectations(apps []app) []truth.App {
	all := make([]truth.App, len(apps))
	for i, a := range apps {
		all[i] = a.expectation()
	}
	return all
}

// apply one object as `kubectl apply --server-side` does.
func (s *stage) apply(ctx context.Context, path string, body []byte) error {
	err := s.kube.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(path).
		Param("fieldManager", fieldManager).Param("force", "true").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("apply %s: %w", path, err)
	}
	return nil
}

func (s *stage) applyDeployment(ctx context.Context, a app) error {
	return s.apply(ctx, "/apis/apps/v1/namespaces/"+a.namespace+"/deployments/"+a.name, a.deployment())
}

func (s *stage) applyPolicy(ctx context.Context, a app) error {
	return s.apply(ctx, "/apis/atoll.dev/v1alpha1/namespaces/"+a.namespace+"/propagationpolicies/"+a.name, a.policy())
}

// applyApp applies the Deployment and then its policy, as they would stand in a file.
func (s *stage) applyApp(ctx context.Context, a app) error {
	if err := s.applyDeployment(ctx, a); err != nil {
		return err
	}
	return s.applyPolicy(ctx, a)
}

// ownWrites are those of a user who applies so many applications.
func ownWrites(apps int) measure.Writes {
	return measure.Writes{"APPLY deployments": float64(apps), "APPLY propagationpolicies": float64(apps)}
}

// makeNamespaces of the applications; one that is there already is fine.
func (s *stage) makeNamespaces(ctx context.Context, apps []app) error {
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

// users is how many of them apply at the same time.
const users = 8

// applyAll applies the applications, some at a time.
func (s *stage) applyAll(ctx context.Context, what string, apps []app) error {
	if err := s.makeNamespaces(ctx, apps); err != nil {
		return err
	}
	s.Progress.Step(what, len(apps))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(users)
	var done atomic.Int64
	for _, a := range apps {
		group.Go(func() error {
			err := s.applyApp(ctx, a)
			s.Progress.Reach(int(done.Add(1)))
			return err
		})
	}
	return group.Wait()
}
