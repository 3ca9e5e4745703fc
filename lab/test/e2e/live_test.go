package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// printedSoFar is all that kubectl has printed so far.
func printedSoFar(t *testing.T, b *backgroundKubectl) string {
	t.Helper()
	text, err := os.ReadFile(b.out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTheFleetIsSeenAsOneCluster: by plain kubectl on the hub, for placed objects and
// nothing else.
func TestTheFleetIsSeenAsOneCluster(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "live")
	apply(t, ns, webDeployment+"---"+everywherePolicy)
	hub := sharedWorld.lab.KubeconfigPath("hub")
	testwait.UntilNil(t, "two pods of each member are seen", func(context.Context) error {
		out := mustKubectl(t, "", "get pods -n "+ns+" --no-headers -l app=web")
		for _, m := range memberNames {
			if strings.Count(out, "."+m+" ") != 2 || strings.Count(out, "Running") != 2*len(memberNames) {
				return errors.New("the output is: " + out)
			}
		}
		return nil
	})
	direct := sharedWorld.lab.KubeconfigPath("member1")
	expectOutput(t, "a pod without a policy", kubectlAt(t, direct, "", "run -n "+ns+" stray --image=registry.example/stray:1"), "created")
	kubectlAtEnd(t, "member1", "delete pod stray --wait=false -n "+ns)
	if out := mustKubectl(t, "", "get pods -A --no-headers"); strings.Contains(out, "stray") || !strings.Contains(out, ".member3 ") {
		t.Errorf("get pods -A:\n%s", out)
	}
	expectOutput(t, "get pods -o wide", mustKubectl(t, "", "get pods -n "+ns+" -o wide"), "CLUSTER", "NODE")
	if out := mustKubectl(t, "", "get pods -n "+ns+" -o name -l atoll.dev/cluster=member2"); strings.Count(out, "pod/") != 2 || strings.Contains(out, "member1") {
		t.Errorf("of one cluster: %s", out)
	}
	expectOutput(t, "get rs", mustKubectl(t, "", "get rs -n "+ns), ".member1", ".member2", ".member3")
	// Members write events when they come to it.
	testwait.UntilNil(t, "get events", logSays(func() string { return mustKubectl(t, "", "get events -n "+ns) }, "ScalingReplicaSet", "deployment/web", ".member2", "Scheduled"))
	expectOutput(t, "rollout history", mustKubectl(t, "", "rollout history deploy/web -n "+ns), "REVISION", "1")
	expectOutput(t, "describe deploy", mustKubectl(t, "", "describe deploy web -n "+ns), "NewReplicaSet:", "ScalingReplicaSet")
	expectOutput(t, "a complete list of what is stored", mustKubectl(t, "", "get deploy -o name -l atoll.dev/complete=true -n "+ns), "deployment.apps/web")
	kubectlFails(t, "", "get deploy -l atoll.dev/complete=no -n "+ns, "requests lists in which nothing is missing")
	pod := strings.TrimPrefix(strings.Fields(mustKubectl(t, "", "get pods -n "+ns+" -o name -l atoll.dev/cluster=member1"))[0], "pod/")
	expectOutput(t, "describe pod", mustKubectl(t, "", "describe pod -n "+ns+" "+pod), "Controlled By:", "Scheduled", pod)
	expectOutput(t, "wait", mustKubectl(t, "", "wait --for=condition=Ready pod -l app=web -n "+ns+" --timeout 60s"), pod+" condition met")

	// Members' nodes have no kubelets: how far a request comes is what their API servers say.
	expectOutput(t, "logs", kubectlAt(t, hub, "", "logs -n "+ns+" deploy/web"), "Found 6 pods", "containerLogs/"+ns+"/web-")
	expectOutput(t, "logs of a pod without a policy", kubectlAt(t, hub, "", "logs -n "+ns+" stray.member1"), `"stray.member1" not found`)
	mustKubectl(t, "", "create rolebinding lila -n "+ns+" --clusterrole cluster-admin --user lila")
	as := " --as lila -n " + ns + " " // with all rights in the namespace on the hub, and none in the member yet
	testwait.UntilNil(t, "what the member does not grant is refused there", func(context.Context) error {
		if out := kubectlAt(t, hub, "", "exec"+as+pod+" -- ls"); !strings.Contains(out, `User "lila" cannot create resource "pods/exec"`) {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	expectOutput(t, "delete", kubectlAt(t, hub, "", "delete pod"+as+pod), `User "lila" cannot delete resource "pods"`)
	expectOutput(t, "a collection", kubectlAt(t, hub, "", "delete --raw /api/v1/namespaces/"+ns+"/pods"), "not deleted as a collection")
	expectOutput(t, "scale of what its controller scales", kubectlAt(t, hub, "", "scale rs -n "+ns+" "+strings.TrimPrefix(strings.Fields(mustKubectl(t, "", "get rs -n "+ns+" -o name"))[0], "replicaset.apps/")+" --replicas 3"), "its controller sets how many")

	grantRole(t, "member1", "live-lila", "--clusterrole cluster-admin --user lila")
	testwait.UntilNil(t, "what the member grants is done there", func(context.Context) error {
		if out := kubectlAt(t, hub, "", "label pod"+as+pod+" touched=yes --overwrite"); !strings.Contains(out, "labeled") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	expectOutput(t, "the label in the member", kubectlAt(t, direct, "", "get pods -n "+ns+" -o name -l touched=yes"), strings.TrimSuffix(pod, ".member1"))
	if out := kubectlAt(t, hub, "", "debug"+as+pod+" --image=registry.example/tool:1 -c tool"); strings.Contains(out, "exit status") {
		t.Errorf("debug: %s", out)
	}
	expectOutput(t, "the debug container in the member", kubectlAt(t, direct, "", "get pods -n "+ns+" -l touched=yes -o jsonpath={.items[0].spec.ephemeralContainers[0].name}"), "tool")
	expectOutput(t, "exec", kubectlAt(t, hub, "", "exec"+as+pod+" -- ls"), "/exec/"+ns+"/")
	events := runKubectl(t, hub, "get pods -n "+ns+" -w --output-watch-events --no-headers")
	events.waitForOutput(t, pod)
	expectOutput(t, "delete", kubectlAt(t, hub, "", "delete pod"+as+pod+" --wait=false"), "deleted")
	testwait.UntilNil(t, "the watch shows what goes and what comes", func(context.Context) error {
		out := printedSoFar(t, events)
		if !strings.Contains(out, "DELETED") || strings.Count(out, "ADDED") < 2*len(memberNames)+1 {
			return errors.New("the output is: " + out)
		}
		return nil
	})
}

// fallsBack: `atoll exec` passes where WebSockets do not, and kubectl does.
func fallsBack(t *testing.T, ns, pod string) {
	t.Helper()
	mustKubectl(t, "", "create serviceaccount ci -n "+ns)
	mustKubectl(t, "", "create rolebinding ci --clusterrole admin --serviceaccount "+ns+":ci -n "+ns)
	grantRole(t, "member1", ns+"-ci", "--clusterrole cluster-admin --user atoll:serviceaccount:"+ns+":ci")
	token := strings.TrimSpace(mustKubectl(t, "", "create token ci -n "+ns))
	server, err := url.Parse(mustKubectl(t, "", "config view -o jsonpath={.clusters[0].cluster.server}"))
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int32
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	between := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			refused.Add(1)
			http.Error(w, "no WebSockets here", http.StatusForbidden)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	config := writeManifest(t, "between.kubeconfig", ns, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: b, contexts: [{name: b, context: {cluster: b, user: b}}],
 clusters: [{name: b, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: b, user: {token: %s}}]}`, between.URL, token))
	testwait.UntilNil(t, "atoll exec by SPDY", func(context.Context) error {
		if out := binaryOutput(t, "across\n", "atoll", "exec", "--kubeconfig", config, "-i", pod, "-n", ns, "--", "cat"); out != "across\n" {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	if refused.Load() == 0 {
		t.Error("no WebSocket was tried")
	}
}

// TestJobsOfTheFleet: a template's pods are found by its selector, which is the hub's; and
// Jobs that its CronJob makes in members are seen.
func TestJobsOfTheFleet(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "jobs")
	mustKubectl(t, "", "annotate ns "+ns+" atoll.dev/clusters=member1,member2")
	mustKubectl(t, "", "create job once -n "+ns+" --image registry.example/once:1")
	mustKubectl(t, "", "create cronjob often -n "+ns+" --image registry.example/often:1 --schedule=@yearly")
	hub, direct := sharedWorld.lab.KubeconfigPath("hub"), sharedWorld.lab.KubeconfigPath("member1")
	testwait.UntilNil(t, "the pods of a Job are found", func(context.Context) error {
		if out := kubectlAt(t, hub, "", "logs job/once -n "+ns); !strings.Contains(out, "Found 2 pods") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	testwait.UntilNil(t, "the CronJob is in a member", func(context.Context) error {
		if out := kubectlAt(t, direct, "", "create job now --from cronjob/often -n "+ns); !strings.Contains(out, "created") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	testwait.UntilNil(t, "its Job is seen", func(context.Context) error {
		if out := kubectlAt(t, hub, "", "get jobs --no-headers -n "+ns); strings.Count(out, "once") != 1 || strings.Count(out, "now.member1") != 1 {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	mustKubectl(t, "", "wait job/now.member1 --for=condition=Complete --timeout=60s -n "+ns)
	expectOutput(t, "whose it is", mustKubectl(t, "", "describe job now.member1 -n "+ns), "CronJob/often")
	expectOutput(t, "whose its status is", kubectlAt(t, hub, "", "patch job now.member1 --subresource status --type merge -p {} -n "+ns), "that cluster reports its status")
}

// TestADisconnectedClusterIsNamedAsMissing: in lists; watches are silent, and continue with
// it.
func TestADisconnectedClusterIsNamedAsMissing(t *testing.T) {
	ns := createNamespace(t, "livecut")
	apply(t, ns, webDeployment+"---"+everywherePolicy)
	sees := func(what, want string) {
		t.Helper()
		testwait.UntilNil(t, what, func(context.Context) error {
			out := kubectlAt(t, sharedWorld.lab.KubeconfigPath("hub"), "", "get pods -n "+ns+" --no-headers")
			if !strings.Contains(out, want) || strings.Contains(out, "Pending") {
				return errors.New("the output is: " + out)
			}
			return nil
		})
	}
	sees("pods of member3 are seen", ".member3 ")
	events := runKubectl(t, sharedWorld.lab.KubeconfigPath("hub"), "get pods -n "+ns+" -w --output-watch-events --no-headers")
	events.waitForOutput(t, ".member3")
	if err := sharedWorld.lab.CutLink(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sharedWorld.lab.HealLink(context.WithoutCancel(t.Context()), "member3") })
	sees("the missing cluster is named", "Warning: pods are missing here: cluster member3 cannot be reached: its agent is not connected to the hub")
	direct := sharedWorld.lab.KubeconfigPath("member3")
	expectOutput(t, "delete", kubectlAt(t, direct, "", "delete pods -n "+ns+" --all --wait=true"), "deleted")
	mustKubectl(t, "", "scale deploy web -n "+ns+" --replicas 3")
	testwait.UntilNil(t, "the watch goes on with the others", func(context.Context) error {
		if out := printedSoFar(t, events); strings.Count(out, ".member1 ") < 3 {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	if out := printedSoFar(t, events); strings.Contains(out, "DELETED") {
		t.Errorf("a disconnected cluster shows as deletions:\n%s", out)
	}
	if err := sharedWorld.lab.HealLink(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "the watch catches up, or ends for another list", func(context.Context) error {
		out := printedSoFar(t, events)
		if strings.Count(out, "DELETED") < 2 && !strings.Contains(out, "list again") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	sees("no cluster is missing", ".member3 ")
}

// TestContainersOfTheFleet: people's work with containers, on the hub, by their names
// there.
func TestContainersOfTheFleet(t *testing.T) {
	ns, _ := aShell(t)
	hub := sharedWorld.lab.KubeconfigPath("hub")
	expectOutput(t, "logs", kubectlAt(t, hub, "", "logs deploy/shell -n "+ns), "begun\nline 1\n")
	runKubectl(t, hub, "logs -f --tail 1 deploy/shell -n "+ns).waitForOutput(t, "line ")
	expectOutput(t, "exec with input", kubectlAt(t, hub, "across\n", "exec -i deploy/shell -n "+ns+" -- cat"), "across\n")
	if out := inShell(t, hub, ns, "exit 42"); !strings.Contains(out, "exit status 42") {
		t.Errorf("the exit code of what was run is lost:\n%s", out)
	}
	checkPortForward(t, hub, ns)
	pod := kubectlAt(t, hub, "", "get pods -o jsonpath={.items[0].metadata.name} -n "+ns)
	runKubectl(t, hub, "attach "+pod+" -n "+ns).waitForOutput(t, "line ")
	checkDebug(t, hub, ns, pod)
	checkCopy(t, hub, ns, pod, 2<<20)
	bySPDY(t, hub, ns)
	fallsBack(t, ns, pod)
	expectOutput(t, "exec by the name of the pod", kubectlAt(t, hub, "", "exec "+pod+" -n "+ns+" -- echo here"), "here")
	expectOutput(t, "delete", kubectlAt(t, hub, "", "delete pod "+pod+" -n "+ns), "deleted")
}
