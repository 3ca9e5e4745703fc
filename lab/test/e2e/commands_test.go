package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// onHub runs atoll against the hub and gives all that it printed, whatever its exit status.
func onHub(t *testing.T, ns, args string, more ...string) string {
	t.Helper()
	return binaryOutput(t, "", "atoll", slices.Concat([]string{"--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")}, strings.Fields(args), []string{"-n", ns}, more)...)
}

// TestGetShowsWhereThingsRun: for users' objects the number of ready clusters, for running
// ones their clusters.
func TestGetShowsWhereThingsRun(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "shown")
	apply(t, ns, webDeployment+"---"+everywherePolicy)
	testwait.UntilNil(t, "the Deployment is ready in all clusters", func(context.Context) error {
		out := onHub(t, ns, "get deployments")
		if !strings.Contains(out, "CLUSTERS   STATE") || !strings.Contains(out, "3/3        Ready") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	expectOutput(t, "wide", onHub(t, ns, "get deploy web -o wide"), "RUNS IN", "member1,member2,member3")
	pods := onHub(t, ns, "get pods --clusters member2")
	expectOutput(t, "pods of a cluster", pods, "CLUSTER   NAME ", "\nmember2   web-", ".member2 ")
	if strings.Contains(pods, "member1") || strings.Contains(pods, "member3") {
		t.Errorf("pods of others are shown too:\n%s", pods)
	}
	if out := onHub(t, ns, "get pods -o name"); strings.Count(out, "pod/web-") != 6 {
		t.Errorf("the names of all pods are\n%s", out)
	}
}

// TestLogsAndExecInAllClusters need real containers.
func TestLogsAndExecInAllClusters(t *testing.T) {
	runsContainers(t)
	ns := createNamespace(t, "merged")
	for _, m := range []string{"member1", "member2"} {
		grantRole(t, m, "merged-"+m, "--clusterrole cluster-admin --group atoll:masters")
	}
	apply(t, ns, strings.ReplaceAll(shellDeployment, "atoll.dev/clusters: member1", `atoll.dev/clusters: "member1,member2"`))
	mustKubectl(t, "", "rollout status deploy/shell --timeout 60s -n "+ns)
	testwait.UntilNil(t, "both clusters say something", func(context.Context) error {
		out := onHub(t, ns, "logs deploy/shell --tail 2")
		if !strings.Contains(out, "[member1/shell-") || !strings.Contains(out, "[member2/shell-") || !strings.Contains(out, " shell] line ") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	if out := onHub(t, ns, "logs deploy/shell --clusters member2"); strings.Contains(out, "[member1/") || !strings.Contains(out, " shell] begun") {
		t.Errorf("of member2 alone it prints\n%s", out)
	}
	expectOutput(t, "a command in each cluster", onHub(t, ns, "exec deploy/shell --all", "--", "hostname"), "[member1/shell-", "[member2/shell-", "EXIT")
	expectOutput(t, "a command in one", onHub(t, ns, "exec deploy/shell --cluster member2", "--", "sh", "-c", "echo here; exit 7"), "here\n", "exit status 7")
}
