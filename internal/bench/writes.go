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

	"atoll.dev/atoll/internal/bench/measure"
)

const (
	// settle is how long nothing has to be written before writes are compared: the
	// status of a policy, the last of all, comes 10 s after what it counts.
	settle = 12 * time.Second
	// patience is how long one change may take, until it has settled.
	patience = 2 * time.Minute
)

// change is one thing that a user does, and how it is known to have come true.
type change struct {
	what, goal, how string
	// own is the request by which the user does it; it is not counted.
	own  string
	do   func(ctx context.Context) error
	done func(ctx context.Context) (bool, error)
}

// writes counts what changes of one Deployment cost the hub's API server.
func (b *bench) writes(ctx context.Context, _ options) (numbers []number, err error) {
	if err := b.policyFor(ctx, "writes", members...); err != nil {
		return nil, err
	}
	if err := b.policyFor(ctx, "moves", members[0]); err != nil {
		return nil, err
	}
	if err := b.apply(ctx, "moves", 2); err != nil {
		return nil, err
	}
	if err := b.eventually(ctx, b.healthy("moves", 2, members[0])); err != nil {
		return nil, err
	}
	before, err := b.settled(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range b.changes() {
		if err := c.do(ctx); err != nil {
			return nil, err
		}
		if err := b.eventually(ctx, c.done); err != nil {
			return nil, fmt.Errorf("%s: %w", c.what, err)
		}
		after, err := b.settled(ctx)
		if err != nil {
			return nil, err
		}
		total, words := 0.0, []string{}
		for _, key := range slices.Sorted(maps.Keys(after)) {
			n := after[key] - before[key]
			if key == c.own {
				n--
			}
			if n > 0 {
				total += n
				words = append(words, fmt.Sprintf("%s %.0f", key, n))
			}
		}
		numbers = append(numbers, number{What: c.what, Value: total, Unit: "requests", Goal: c.goal, How: c.how, Detail: strings.Join(words, ", ")})
		before = after
	}
	return numbers, nil
}

func (b *bench) changes() []change {
	deployments := b.hub.AppsV1().Deployments(namespace)
	gone := func(ctx context.Context) (bool, error) {
		_, err := deployments.Get(ctx, "writes", metav1.GetOptions{})
		if err == nil || !apierrors.IsNotFound(err) {
			return false, err
		}
		return b.only(ctx, "writes")
	}
	return []change{
		{
			what: "hub writes, apply to all healthy", goal: "<= 12", own: "APPLY deployments",
			how:  "a Deployment to 3 members, the user's own request left out",
			do:   func(ctx context.Context) error { return b.apply(ctx, "writes", 2) },
			done: b.healthy("writes", 2, members...),
		}, {
			what: "hub writes, scale by edit", own: "APPLY deployments", how: "the same from 2 to 3 replicas",
			do:   func(ctx context.Context) error { return b.apply(ctx, "writes", 3) },
			done: b.healthy("writes", 3, members...),
		}, {
			what: "hub writes, move", own: "APPLY propagationpolicies", how: "another from one member to another, the new healthy before the old goes",
			do:   func(ctx context.Context) error { return b.policyFor(ctx, "moves", members[1]) },
			done: b.healthy("moves", 2, members[1]),
		}, {
			what: "hub writes, delete", own: "DELETE deployments", how: "the first out of 3 members, with what Atoll kept about it",
			do:   func(ctx context.Context) error { return deployments.Delete(ctx, "writes", metav1.DeleteOptions{}) },
			done: gone,
		},
	}
}

// policyFor places the Deployment of that name.
func (b *bench) policyFor(ctx context.Context, name string, clusters ...string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "PropagationPolicy",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"resourceSelectors": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
			"placement":         map[string]any{"clusterAffinity": map[string]any{"clusterNames": clusters}},
		},
	})
	if err != nil {
		return err
	}
	err = b.hub.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath("/apis/atoll.dev/v1alpha1/namespaces/"+namespace+"/propagationpolicies/"+name).
		Param("fieldManager", "kubectl").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("apply policy %s: %w", name, err)
	}
	return nil
}

// healthy asks whether the Deployment has so many replicas, as the hub tells, and is
// in these members only.
func (b *bench) healthy(name string, replicas int32, in ...string) func(ctx context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		d, err := b.hub.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != replicas || d.Status.AvailableReplicas != replicas {
			return false, err
		}
		return b.only(ctx, name, in...)
	}
}

// only asks whether the Deployment is in these members and in no other.
func (b *bench) only(ctx context.Context, name string, in ...string) (bool, error) {
	for _, m := range members {
		_, err := b.member[m].AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		if (err == nil) != slices.Contains(in, m) {
			return false, nil
		}
	}
	return true, nil
}

func (b *bench) eventually(ctx context.Context, done func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, done); err != nil {
		return fmt.Errorf("it did not come true: %w", err)
	}
	return nil
}

// settled gives the count of writes once there were no new ones for a while.
func (b *bench) settled(ctx context.Context) (map[string]float64, error) {
	var last map[string]float64
	since := time.Now()
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		now, err := Requests(ctx, b.hub.CoreV1().RESTClient())
		if err != nil {
			return false, err
		}
		if !maps.Equal(last, now) {
			last, since = now, time.Now()
		}
		return time.Since(since) >= settle, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the hub goes on writing: %w", err)
	}
	return last, nil
}

// Requests reads the API server's count of requests that wrote, by verb and
// resource, since it started. Leases, reviews, dry runs and what failed are left out.
func Requests(ctx context.Context, server rest.Interface) (map[string]float64, error) {
	m, err := measure.ReadMetrics(ctx, server)
	if err != nil {
		return nil, err
	}
	return m.Writes(), nil
}
