package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/lab/bench/measure"
)

const (
	// settleTime is the time without writes before writes are compared: the status of a
	// policy comes last, 10 s after its cause.
	settleTime = 12 * time.Second
	// changeTimeout bounds one change, until it has settled.
	changeTimeout = 2 * time.Minute
)

// userChange is one change by a user, and the check of its completion.
type userChange struct {
	what, goalText, howText string
	// ownRequest is the user's own request; it is not counted.
	ownRequest  string
	applyChange func(ctx context.Context) error
	isDone      func(ctx context.Context) (bool, error)
}

// countHubWrites counts the writes of the hub's API server for changes of one Deployment.
func (b *labBench) countHubWrites(ctx context.Context, _ benchOptions) (numbers []benchNumber, err error) {
	if err := b.applyDeploymentPolicy(ctx, "writes", memberNames...); err != nil {
		return nil, err
	}
	if err := b.applyDeploymentPolicy(ctx, "moves", memberNames[0]); err != nil {
		return nil, err
	}
	if err := applyDeployment(ctx, b.hubClient, "moves", 2); err != nil {
		return nil, err
	}
	if err := b.waitUntilDone(ctx, b.isHealthyIn("moves", 2, memberNames[0])); err != nil {
		return nil, err
	}
	before, err := b.waitForSettledWrites(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range b.userChanges() {
		if err := c.applyChange(ctx); err != nil {
			return nil, err
		}
		if err := b.waitUntilDone(ctx, c.isDone); err != nil {
			return nil, fmt.Errorf("%s: %w", c.what, err)
		}
		after, err := b.waitForSettledWrites(ctx)
		if err != nil {
			return nil, err
		}
		total, words := addedWrites(before, after, c.ownRequest)
		numbers = append(numbers, benchNumber{What: c.what, Value: total, Unit: "requests", Goal: c.goalText, How: c.howText, Detail: strings.Join(words, ", ")})
		before = after
	}
	return numbers, nil
}

// addedWrites returns the writes between two readings without the user's own request, in all and by kind.
func addedWrites(before, after map[string]float64, ownRequest string) (total float64, words []string) {
	for _, key := range slices.Sorted(maps.Keys(after)) {
		n := after[key] - before[key]
		if key == ownRequest {
			n--
		}
		if n > 0 {
			total += n
			words = append(words, fmt.Sprintf("%s %.0f", key, n))
		}
	}
	return total, words
}

func (b *labBench) userChanges() []userChange {
	deployments := b.hubClient.AppsV1().Deployments(benchNamespace)
	gone := func(ctx context.Context) (bool, error) {
		_, err := deployments.Get(ctx, "writes", metav1.GetOptions{})
		if err == nil || !apierrors.IsNotFound(err) {
			return false, err
		}
		return b.isDeployedOnlyIn(ctx, "writes")
	}
	return []userChange{
		{
			what: "hub writes, apply to all healthy", goalText: "<= 12", ownRequest: "APPLY deployments",
			howText:     "a Deployment to 3 members, the user's own request left out",
			applyChange: func(ctx context.Context) error { return applyDeployment(ctx, b.hubClient, "writes", 2) },
			isDone:      b.isHealthyIn("writes", 2, memberNames...),
		}, {
			what: "hub writes, scale by edit", ownRequest: "APPLY deployments", howText: "the same from 2 to 3 replicas",
			applyChange: func(ctx context.Context) error { return applyDeployment(ctx, b.hubClient, "writes", 3) },
			isDone:      b.isHealthyIn("writes", 3, memberNames...),
		}, {
			what: "hub writes, move", ownRequest: "APPLY propagationpolicies", howText: "another from one member to another, the new healthy before the old goes",
			applyChange: func(ctx context.Context) error { return b.applyDeploymentPolicy(ctx, "moves", memberNames[1]) },
			isDone:      b.isHealthyIn("moves", 2, memberNames[1]),
		}, {
			what: "hub writes, delete", ownRequest: "DELETE deployments", howText: "the first out of 3 members, with what Atoll kept about it",
			applyChange: func(ctx context.Context) error { return deployments.Delete(ctx, "writes", metav1.DeleteOptions{}) },
			isDone:      gone,
		},
	}
}

// applyDeploymentPolicy places the Deployment of that name.
func (b *labBench) applyDeploymentPolicy(ctx context.Context, name string, clusters ...string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "PropagationPolicy",
		"metadata": map[string]any{"name": name, "namespace": benchNamespace},
		"spec": map[string]any{
			"resourceSelectors": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
			"placement":         map[string]any{"clusterAffinity": map[string]any{"clusterNames": clusters}},
			"rollout":           map[string]any{"type": "All"}, // an edit is one wave
		},
	})
	if err != nil {
		return err
	}
	err = b.hubClient.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath("/apis/atoll.dev/v1alpha1/namespaces/"+benchNamespace+"/propagationpolicies/"+name).
		Param("fieldManager", "kubectl").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("apply policy %s: %w", name, err)
	}
	return nil
}

// isHealthyIn returns a check that the hub shows that many replicas of the Deployment, and
// that it is in these members only.
func (b *labBench) isHealthyIn(name string, replicas int32, in ...string) func(ctx context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		d, err := b.hubClient.AppsV1().Deployments(benchNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != replicas || d.Status.AvailableReplicas != replicas {
			return false, err
		}
		return b.isDeployedOnlyIn(ctx, name, in...)
	}
}

// isDeployedOnlyIn reports whether the Deployment is in these members and in no other.
func (b *labBench) isDeployedOnlyIn(ctx context.Context, name string, in ...string) (bool, error) {
	for _, m := range memberNames {
		_, err := b.memberClients[m].AppsV1().Deployments(benchNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		if (err == nil) != slices.Contains(in, m) {
			return false, nil
		}
	}
	return true, nil
}

func (b *labBench) waitUntilDone(ctx context.Context, done func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, changeTimeout, true, done); err != nil {
		return fmt.Errorf("it did not come true: %w", err)
	}
	return nil
}

// waitForSettledWrites returns the count of writes after a while without new ones.
func (b *labBench) waitForSettledWrites(ctx context.Context) (map[string]float64, error) {
	var last map[string]float64
	since := time.Now()
	err := wait.PollUntilContextTimeout(ctx, time.Second, changeTimeout, true, func(ctx context.Context) (bool, error) {
		now, err := ReadWriteRequests(ctx, b.hubClient.CoreV1().RESTClient())
		if err != nil {
			return false, err
		}
		if !maps.Equal(last, now) {
			last, since = now, time.Now()
		}
		return time.Since(since) >= settleTime, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the hub goes on writing: %w", err)
	}
	return last, nil
}

// ReadWriteRequests returns the API server's count of write requests since its start, by
// verb and resource. Leases, reviews, dry runs and failures are left out.
func ReadWriteRequests(ctx context.Context, server rest.Interface) (map[string]float64, error) {
	m, err := measure.ReadMetrics(ctx, server)
	if err != nil {
		return nil, err
	}
	return m.WriteCounts(), nil
}
