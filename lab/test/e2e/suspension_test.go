package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// suspendPolicy states the suspension of policy web, and waits until its Bundle has it.
func suspendPolicy(t *testing.T, ns, is, bundleHas string) {
	t.Helper()
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"suspension":`+is+`}}`)
	testwait.UntilNil(t, "the Bundle has the suspension", func(context.Context) error {
		out := runCLI(t, "get", "bundles", "-n", ns, "-o", "yaml")
		if _, spec, _ := strings.Cut(out, "suspension:"); strings.Contains(out, "suspension:") && strings.Contains(spec[:min(len(spec), 120)], bundleHas) {
			return nil
		}
		return errors.New(out)
	})
}

// TestASuspensionHoldsChanges checks that a policy which suspends dispatching changes no member, or not those that it names, that it keeps a deleted
// template, that a suspension of scheduling moves nothing, and that all go on after it.
func TestASuspensionHoldsChanges(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "suspended")
	const before, after, last = "registry.example/web:1", "registry.example/web:2", "registry.example/web:3"
	web := strings.Replace(slowDeployment, "  replicas: 3", "  replicas: 1", 1)
	apply(t, ns, stagedPolicy[:strings.Index(stagedPolicy, "  rollout:")]+"---"+web)
	both := func(image1, image2 string) func(ctx context.Context) error {
		return allChecks(imageIn("member1", ns, image1), imageIn("member2", ns, image2))
	}
	testwait.UntilNil(t, "the first installation", both(before, before))

	suspendPolicy(t, ns, `{"dispatching":true}`, "dispatching: true")
	setImage(t, ns, after, "1s")
	testwait.UntilNil(t, "the suspension holds", rolloutShows(t, ns, "^DispatchingSuspended: clusters wait for an edit of spec.suspension.dispatching of PropagationPolicy web, .*; the application's owner must act$"))
	testwait.UntilNil(t, "explain says why", explanationMatches("deployment/web -n "+ns, "waits for an edit of spec.suspension.dispatching of PropagationPolicy web"))
	edited := writeManifest(t, "web.yaml", ns, strings.Replace(web, before, last, 1))
	expectOutput(t, "the plan of another image", runCLI(t, "plan", "-f", edited), "would wait for an edit of spec.suspension.dispatching of PropagationPolicy web")
	if err := both(before, before)(t.Context()); err != nil {
		t.Errorf("members change in a suspension: %v", err)
	}

	suspendPolicy(t, ns, `{"dispatching":null,"dispatchingOnClusters":{"clusterNames":["member2"]}}`, "member2")
	testwait.UntilNil(t, "the other member changes", both(after, before))
	testwait.UntilNil(t, "the suspended member is counted apart", rolloutShows(t, ns, "DISCONNECTED +SUSPENDED$", "^rest +1 +1 +0 +0 +0 +0 +1$", "^DispatchingSuspended: .*dispatchingOnClusters"))
	if err := both(after, before)(t.Context()); err != nil {
		t.Errorf("the suspended member changes: %v", err)
	}

	suspendPolicy(t, ns, `{"dispatchingOnClusters":null,"scheduling":true}`, "scheduling: true")
	testwait.UntilNil(t, "the member catches up", both(after, after))
	placeOn(t, ns, "web", "member1")
	testwait.UntilNil(t, "explain says what would be decided", explanationMatches("deployment/web -n "+ns, "scheduling is suspended; without that, the copy would leave"))
	setImage(t, ns, last, "1s")
	testwait.UntilNil(t, "both change, as decided", both(last, last))

	suspendPolicy(t, ns, `{"dispatching":true}`, "dispatching: true")
	remove(t, "apps/v1", "Deployment", ns, "web")
	testwait.UntilNil(t, "the deletion waits", rolloutShows(t, ns, "^DispatchingSuspended: "))
	if err := both(last, last)(t.Context()); err != nil {
		t.Errorf("the deletion goes to a member: %v", err)
	}
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"suspension":null}}`)
	testwait.UntilNil(t, "the Deployment is gone", allChecks(existsIn("apps/v1", "Deployment", ns, "web"), func(ctx context.Context) error {
		o, err := get(ctx, "hub", "apps/v1", "Deployment", ns, "web")
		if err == nil && o != nil {
			err = errors.New("the template is still on the hub")
		}
		return err
	}))
}
