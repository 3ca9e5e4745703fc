package rollout_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	utilexec "k8s.io/client-go/util/exec"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/command/clienttest"
)

// A status that shows a freeze or a suspension which has ended is of before: the command waits for the next one. One that lasts needs a person.
func TestWaitAfterTheEndOfAHalt(t *testing.T) {
	const settings = "atoll.dev/hubsettings/" + v1alpha1.HubSettingsName
	const policy, fleetPolicy = "atoll.dev/namespaces/shop/propagationpolicies/web", "atoll.dev/clusterpropagationpolicies/web"
	const suspends = "suspension: {dispatching: true}"
	for name, c := range map[string]struct {
		reason, spec string
		more         map[string]string
		code         int
	}{
		"frozen":                   {"ChangesFrozen", "{}", map[string]string{settings: "{spec: {freeze: {reason: outage, by: bob}}}"}, 4},
		"the freeze has ended":     {"ChangesFrozen", "{}", map[string]string{settings: "{spec: {freeze: {reason: outage, by: bob, until: \"2026-11-22T12:00:00Z\"}}}"}, 5},
		"lifted":                   {"ChangesFrozen", "{}", map[string]string{settings: "{spec: {}}"}, 5},
		"without settings":         {"ChangesFrozen", "{}", nil, 5},
		"suspended":                {"DispatchingSuspended", "{source: {kind: PropagationPolicy, name: web}, " + suspends + "}", map[string]string{policy: "{spec: {" + suspends + "}}"}, 4},
		"by a policy of all":       {"DispatchingSuspended", "{source: {kind: ClusterPropagationPolicy, name: web}, " + suspends + "}", map[string]string{fleetPolicy: "{spec: {" + suspends + "}}"}, 4},
		"by a policy that went":    {"DispatchingSuspended", "{source: {kind: PropagationPolicy, name: web}, " + suspends + "}", nil, 4},
		"the policy is edited":     {"DispatchingSuspended", "{source: {kind: PropagationPolicy, name: web}, " + suspends + "}", map[string]string{policy: "{spec: {}}"}, 5},
		"the Bundle is edited":     {"DispatchingSuspended", "{source: {kind: PropagationPolicy, name: web}}", nil, 5},
		"only suspended ones wait": {"DispatchingSuspended", "{source: {kind: PropagationPolicy, name: web}, suspension: {dispatchingOnClusters: {clusterNames: [a]}}}", map[string]string{policy: "{spec: {suspension: {dispatchingOnClusters: {clusterNames: [a]}}}}"}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			objects := map[string]string{web: "{kind: Bundle, apiVersion: atoll.dev/v1alpha1, metadata: {name: web, namespace: shop, uid: b-web}, spec: " + c.spec + ", status: {rollout: {currentStage: rest, reason: " + c.reason + ", message: x, stages: [{name: rest, clusters: 2, updated: 1, changing: 0, failed: 0, waiting: 1, disconnected: 0, suspended: 3}]}}}"}
			for path, object := range c.more {
				objects[path] = object
			}
			args := []string{"status", "bundle/web", "-n", "shop", "--wait"}
			if c.code == 5 {
				args = append(args, "--timeout", "100ms")
			}
			out, err := run(t, clienttest.NewFakeHub(t, objects), args...)
			var exit utilexec.CodeExitError
			if !errors.As(err, &exit) || exit.Code != c.code || !strings.Contains(out, "(3 suspended)") {
				t.Errorf("%v, want exit code %d\n%s", err, c.code, out)
			}
			if out, err = run(t, clienttest.NewFakeHub(t, objects), "status", "bundle/web", "-n", "shop"); err != nil || !strings.Contains(out, "DISCONNECTED  SUSPENDED\nrest *  2         1        0         0       1        0             3\n") {
				t.Error(fmt.Sprint(err, "\n", out))
			}
		})
	}
}

// A Bundle without a decision waits for a person while its policy suspends scheduling. A status of before the end of the suspension does not count.
func TestWaitWhileSchedulingIsSuspended(t *testing.T) {
	const policy = "atoll.dev/namespaces/shop/propagationpolicies/web"
	for spec, code := range map[string]int{"{suspension: {scheduling: true}}": 4, "{}": 5, "{suspension: {dispatching: true}}": 5} {
		h := clienttest.NewFakeHub(t, map[string]string{
			web:    "{kind: Bundle, apiVersion: atoll.dev/v1alpha1, metadata: {name: web, namespace: shop, uid: b-web}, spec: {source: {kind: PropagationPolicy, name: web}, suspension: {scheduling: true}}, status: {waitsFor: a decision, wait: {reason: SchedulingSuspended, actor: x, since: \"2026-11-22T12:00:00Z\"}}}",
			policy: "{spec: " + spec + "}",
		})
		args := []string{"status", "bundle/web", "-n", "shop", "--wait"}
		if code == 5 {
			args = append(args, "--timeout", "100ms")
		}
		out, err := run(t, h, args...)
		var exit utilexec.CodeExitError
		if !errors.As(err, &exit) || exit.Code != code || !strings.Contains(out, "SchedulingSuspended: a decision") {
			t.Errorf("%s: %v, want exit code %d\n%s", spec, err, code, out)
		}
	}
}
