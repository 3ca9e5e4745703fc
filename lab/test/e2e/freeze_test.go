package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/testwait"
)

// TestAFreezeAndAWindowHoldChanges checks that neither members nor new applications change in a freeze, that an exempt one does, and that all
// go on after it, and that a change waits for its window. It runs beside no other test: a freeze holds them too.
func TestAFreezeAndAWindowHoldChanges(t *testing.T) {
	ns := createNamespace(t, "frozen")
	const before, after, last = "registry.example/web:1", "registry.example/web:2", "registry.example/web:3"
	web := strings.Replace(slowDeployment, "  replicas: 3", "  replicas: 1", 1)
	policy := stagedPolicy[:strings.Index(stagedPolicy, "  rollout:")]
	apply(t, ns, policy+"---"+web)
	both := func(image string) error {
		return allChecks(imageIn("member1", ns, image), imageIn("member2", ns, image))(t.Context())
	}
	testwait.UntilNil(t, "the first installation", allChecks(imageIn("member1", ns, before), imageIn("member2", ns, before)))

	t.Cleanup(func() {
		binaryFor(context.WithoutCancel(t.Context()), t, "", "atoll", "unfreeze", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"))
	})
	if out := runCLI(t, "freeze", "incident 4711", "--until", "4h"); !strings.Contains(out, "all changes are frozen") {
		t.Fatalf("freeze: %s", out)
	}
	setImage(t, ns, after, "1s")
	testwait.UntilNil(t, "the freeze holds", rolloutShows(t, ns, "^ChangesFrozen: clusters wait for `atoll unfreeze` or .*: .* froze all changes at .* .incident 4711.; the hub's administrator must act$"))
	testwait.UntilNil(t, "explain says why", explanationMatches("deployment/web -n "+ns, "waits for .atoll unfreeze.*incident 4711"))
	if err := both(before); err != nil {
		t.Errorf("members change in a freeze: %v", err)
	}
	if out := runCLI(t, "freeze"); !strings.Contains(out, "incident 4711") {
		t.Errorf("the freeze is shown as %s", out)
	}
	if out := runCLI(t, "rollout", "exempt", "deployment/web", "-n", ns, "--message", "it mends the incident"); !strings.Contains(out, "goes on in the freeze") {
		t.Fatalf("exempt: %s", out)
	}
	testwait.UntilNil(t, "the exempt application changes", allChecks(imageIn("member1", ns, after), imageIn("member2", ns, after)))
	if out := runCLI(t, "unfreeze"); !strings.Contains(out, "no freeze holds changes") {
		t.Fatalf("unfreeze: %s", out)
	}

	opens := time.Now().UTC().AddDate(0, 2, 0)
	window := fmt.Sprintf("  rollout: {windows: [{type: Allow, schedule: \"0 0 1 %d *\", duration: 1h}]}\n", opens.Month())
	apply(t, ns, policy+window)
	testwait.UntilNil(t, "the Bundle has the window", func(context.Context) error {
		if out := runCLI(t, "get", "bundles", "-n", ns, "-o", "yaml"); !strings.Contains(out, "windows") {
			return errors.New(out)
		}
		return nil
	})
	setImage(t, ns, last, "1s")
	testwait.UntilNil(t, "the window holds", rolloutShows(t, ns, fmt.Sprintf("^OutsideWindow: .*which opens at %s-01T00:00:00Z", opens.Format("2006-01"))))
	if err := both(after); err != nil {
		t.Errorf("members change outside the window: %v", err)
	}
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"rollout":null}}`)
	testwait.UntilNil(t, "they change without a window", allChecks(imageIn("member1", ns, last), imageIn("member2", ns, last)))
}
