package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/testwait"
)

const stagedPolicy = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
  rollout:
    type: Staged
    stages:
    - name: canary
      clusters: {names: [member1]}
`

const gatedPolicy = stagedPolicy + `
      gatesAfter:
      - {name: owner, approval: {validFor: 1h}}
      - {name: healthy, cel: "stage.failed == 0 && stage.updated == 1"}
`

// imageIn returns a check of the image of Deployment web in a member.
func imageIn(member, ns, want string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, member, "apps/v1", "Deployment", ns, "web")
		if err != nil || o == nil {
			return fmt.Errorf("%s: no Deployment (%v)", member, err)
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if got := fmt.Sprint(containers[0].(map[string]any)["image"]); got != want {
			return fmt.Errorf("%s: the image is %s, want %s", member, got, want)
		}
		return nil
	}
}

// rolloutShows returns a check of the output of `atoll rollout status`.
func rolloutShows(t *testing.T, ns string, patterns ...string) func(ctx context.Context) error {
	return func(context.Context) error {
		out := runCLI(t, "rollout", "status", "deployment/web", "-n", ns)
		for _, p := range patterns {
			if !regexp.MustCompile("(?m)" + p).MatchString(out) {
				return errors.New("rollout status does not match " + p + ":\n" + out)
			}
		}
		return nil
	}
}

// setImage changes the image of Deployment web on the hub. Pods of a bad image never become ready.
func setImage(t *testing.T, ns, image, readyAfter string) {
	t.Helper()
	setImageOf(t, ns, "web", image, readyAfter)
}

// setImageOf changes the image of a Deployment on the hub, and how long after its start each pod is ready.
func setImageOf(t *testing.T, ns, name, image, readyAfter string) {
	t.Helper()
	patch(t, "apps/v1", "Deployment", ns, name, fmt.Sprintf(
		`{"spec":{"template":{"metadata":{"annotations":{"lab.atoll.dev/ready-after":%q}},"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, readyAfter, name, image))
}

// TestAChangeGoesThroughStages checks that a bad image stops in the first stage, that a person resumes and pauses,
// and that status, explain and plan show it.
func TestAChangeGoesThroughStages(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "stages")
	const good, bad, next, last, gated = "registry.example/web:1", "registry.example/web:bad", "registry.example/web:3", "registry.example/web:4", "registry.example/web:5"
	web := strings.Replace(slowDeployment, "spec:\n  replicas: 3", "spec:\n  progressDeadlineSeconds: 5\n  replicas: 1", 1)
	apply(t, ns, stagedPolicy+"---"+web)
	testwait.UntilNil(t, "the first installation", allChecks(imageIn("member1", ns, good), imageIn("member2", ns, good)))
	testwait.UntilNil(t, "it is complete", rolloutShows(t, ns, `^canary +1 +1 +0 +0 +0 +0$`, `^rest +1 +1 +0 +0 +0 +0$`, `^complete: `))

	setImage(t, ns, bad, "1h")
	testwait.UntilNil(t, "the stage fails", rolloutShows(t, ns, `^canary \* +1 +0 +0 +1 +0 +0$`, `^rest +1 +0 +0 +0 +1 +0$`, `^StageFailed: .*the application's owner must act$`))
	if err := allChecks(imageIn("member1", ns, bad), imageIn("member2", ns, good))(t.Context()); err != nil {
		t.Errorf("the second stage has changed: %v", err)
	}
	testwait.UntilNil(t, "explain says why", explanationMatches("deployment/web -n "+ns, `waits for stage canary, in which 1 cluster failed.*; for .*; to act: the application's owner$`))
	edited := writeManifest(t, "web.yaml", ns, strings.Replace(web, good, next, 1))
	expectOutput(t, "the plan of another image", runCLI(t, "plan", "-f", edited), "Stage canary: 1 cluster would change at first, 0 later", "Stage rest: 0 clusters would change at first, 1 later")

	if out := runCLI(t, "rollout", "pause", "deployment/web", "-n", ns, "--message", "lunch"); !strings.Contains(out, "is paused") {
		t.Fatalf("pause: %s", out)
	}
	setImage(t, ns, next, "1s")
	testwait.UntilNil(t, "the pause holds", rolloutShows(t, ns, `^canary \* +1 +0 +0 +0 +1 +0$`, `^paused by \S+ since `, `^RolloutPaused: .*lunch`))
	if err := allChecks(imageIn("member1", ns, bad), imageIn("member2", ns, good))(t.Context()); err != nil {
		t.Errorf("a paused rollout changes: %v", err)
	}
	if out := runCLI(t, "rollout", "resume", "deployment/web", "-n", ns); !strings.Contains(out, "is resumed") {
		t.Fatalf("resume: %s", out)
	}
	testwait.UntilNil(t, "all change", allChecks(imageIn("member1", ns, next), imageIn("member2", ns, next)))
	testwait.UntilNil(t, "it is complete", rolloutShows(t, ns, `^complete: `))

	setImage(t, ns, last, "1h")
	testwait.UntilNil(t, "the stage fails", rolloutShows(t, ns, `^StageFailed: `))
	if out := runCLI(t, "rollout", "resume", "deployment/web", "-n", ns); !strings.Contains(out, "is resumed") {
		t.Fatalf("resume: %s", out)
	}
	testwait.UntilNil(t, "a person accepts the failure", imageIn("member2", ns, last))

	apply(t, ns, gatedPolicy)
	testwait.UntilNil(t, "the Bundle has the gates", func(context.Context) error {
		if out := runCLI(t, "get", "bundles", "-n", ns, "-o", "yaml"); !strings.Contains(out, "gatesAfter") {
			return errors.New(out)
		}
		return nil
	})
	setImage(t, ns, gated, "1s")
	testwait.UntilNil(t, "the stage waits for a person", rolloutShows(t, ns, `^canary +1 +1 +0 +0 +0 +0$`, `^rest \* +1 +0 +0 +0 +1 +0$`,
		`^gate owner of stage canary: Waiting since .*\(0 of 1 approval\)$`, `^gate healthy of stage canary: Satisfied since .*\(true\)$`, `^WaitsForApproval: .*a person that may approve the rollout must act$`))
	testwait.UntilNil(t, "explain says so", explanationMatches("deployment/web -n "+ns, `gate owner of stage canary: .atoll rollout approve --stage canary.; for .*; to act: a person that may approve the rollout$`))
	if err := imageIn("member2", ns, last)(t.Context()); err != nil {
		t.Errorf("the stage has begun without an approval: %v", err)
	}
	edited = writeManifest(t, "web.yaml", ns, strings.Replace(web, good, last+"1", 1))
	expectOutput(t, "the plan of another image", runCLI(t, "plan", "-f", edited), "Before it, gate owner of stage canary: `atoll rollout approve --stage canary`.")
	if out := runCLI(t, "rollout", "approve", "deployment/web", "-n", ns); !strings.Contains(out, "is approved for stage canary") {
		t.Fatalf("approve: %s", out)
	}
	expectOutput(t, "it is done", runCLI(t, "rollout", "status", "deployment/web", "-n", ns, "--wait", "--timeout", "3m"), "canary 1/1, rest 1/1")
	if err := allChecks(imageIn("member2", ns, gated), rolloutShows(t, ns, `^gate owner of stage canary: Passed since .*\(1 of 1 approval: \S+\)$`, `^complete: `))(t.Context()); err != nil {
		t.Error(err)
	}
}

const rollbackPolicy = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
  rollout:
    type: Staged
    stages:
    - {name: canary, clusters: {names: [member1]}, maxFailures: 1, onFailure: Rollback, progressDeadline: $DEADLINE}
    - {name: wide, clusters: {labelSelector: {}}, onFailure: Rollback, progressDeadline: $DEADLINE}
`

// stateDeadline states the progressDeadline of both stages, and waits for the Bundle to have it.
func stateDeadline(t *testing.T, ns, deadline string) {
	t.Helper()
	apply(t, ns, strings.ReplaceAll(rollbackPolicy, "$DEADLINE", deadline))
	testwait.UntilNil(t, "the Bundle has the deadline", func(context.Context) error {
		if out := runCLI(t, "get", "bundles", "-n", ns, "-o", "yaml"); !strings.Contains(out, "progressDeadline: "+deadline) {
			return errors.New(out)
		}
		return nil
	})
}

// TestAFailedStageRollsBack checks that an image that is late in the second stage leaves both members, that status and explain say why,
// and that another template supersedes the rollback.
func TestAFailedStageRollsBack(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "rollback")
	const good, late, next = "registry.example/web:1", "registry.example/web:late", "registry.example/web:3"
	apply(t, ns, strings.Replace(slowDeployment, "spec:\n  replicas: 3", "spec:\n  replicas: 1", 1))
	stateDeadline(t, ns, "100h0m0s")
	testwait.UntilNil(t, "the first installation", allChecks(imageIn("member1", ns, good), imageIn("member2", ns, good)))
	testwait.UntilNil(t, "it is complete", rolloutShows(t, ns, `^canary +1 +1 +0 +0 +0 +0$`, `^wide +1 +1 +0 +0 +0 +0$`, `^complete: `))

	stateDeadline(t, ns, "10s")
	setImage(t, ns, late, "1h")
	testwait.UntilNil(t, "it is rolled back", rolloutShows(t, ns, `^RolledBack: .*member2 of stage wide failed with StageDeadlineExceeded; the application's owner must act$`))
	if err := allChecks(imageIn("member1", ns, good), imageIn("member2", ns, good))(t.Context()); err != nil {
		t.Errorf("a member keeps what was rolled back: %v", err)
	}
	testwait.UntilNil(t, "explain says why", explanationMatches("deployment/web -n "+ns, `was rolled back, since member2 of stage wide failed`))

	stateDeadline(t, ns, "100h0m0s")
	setImage(t, ns, next, "1s")
	testwait.UntilNil(t, "another template supersedes it", allChecks(imageIn("member1", ns, next), imageIn("member2", ns, next), rolloutShows(t, ns, `^complete: `)))
}

const autoStagedPolicy = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
  rollout: {type: Staged, autoStages: [1]}
`

// TestAutoStages checks that plan, status and explain name stages of a size, that a bad image stops after one of two members, and that
// another image goes through.
func TestAutoStages(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "auto-stages")
	const good, bad, next = "registry.example/web:1", "registry.example/web:bad", "registry.example/web:3"
	web := strings.Replace(slowDeployment, "spec:\n  replicas: 3", "spec:\n  progressDeadlineSeconds: 5\n  replicas: 1", 1)
	apply(t, ns, autoStagedPolicy+"---"+web)
	testwait.UntilNil(t, "the first installation", allChecks(imageIn("member1", ns, good), imageIn("member2", ns, good)))
	testwait.UntilNil(t, "it is complete", rolloutShows(t, ns, `^auto 1 +1 +1 +0 +0 +0 +0$`, `^auto 100% +1 +1 +0 +0 +0 +0$`, `^complete: `))
	edited := writeManifest(t, "web.yaml", ns, strings.Replace(web, good, bad, 1))
	expectOutput(t, "the plan of another image", runCLI(t, "plan", "-f", edited), "Stage auto 1: 1 cluster would change at first, 0 later", "Stage auto 100%: 0 clusters would change at first, 1 later")

	setImage(t, ns, bad, "1h")
	testwait.UntilNil(t, "the stage fails", rolloutShows(t, ns, `^auto 1 \* +1 +0 +0 +1 +0 +0$`, `^auto 100% +1 +0 +0 +0 +1 +0$`, `^StageFailed: .*stage auto 1, in which 1 cluster failed`))
	changed := 0
	for _, member := range []string{"member1", "member2"} {
		if imageIn(member, ns, bad)(t.Context()) == nil {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("%d members have the bad image, want 1", changed)
	}
	testwait.UntilNil(t, "explain says why", explanationMatches("deployment/web -n "+ns, `waits for stage auto 1, in which 1 cluster failed`))
	setImage(t, ns, next, "1s")
	testwait.UntilNil(t, "another image goes through", allChecks(imageIn("member1", ns, next), imageIn("member2", ns, next), rolloutShows(t, ns, `^complete: `)))
}
