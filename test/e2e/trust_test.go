package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/lab"
)

// invitation is what `atoll token create -o json` prints.
type invitation struct{ Token, Hub, CAHash string }

func invite(t *testing.T, flags ...string) invitation {
	t.Helper()
	out := cli(t, append([]string{"token", "create", "-o", "json"}, flags...)...)
	var i invitation
	if err := json.Unmarshal([]byte(out), &i); err != nil {
		t.Fatalf("atoll token create: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		binaryFor(context.WithoutCancel(t.Context()), t, "", "atoll", "token", "delete", i.Token, "--kubeconfig", world.lab.Kubeconfig("hub"))
	})
	return i
}

// start runs a built binary until the test ends or stop is called; log gives what it
// has printed so far.
func start(t *testing.T, name string, args ...string) (log func() string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	file, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(lab.BinDirVariable), name), args...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return func() string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}, stop
}

// cutOffWithin is how soon an agent learns that it is not wanted any more: before its
// hub would find a link that is half open.
const cutOffWithin = 15 * time.Second

// stranger starts one more member that no hub knows, with more flags, and gives its
// kubeconfig.
func stranger(t *testing.T, flags ...string) string {
	t.Helper()
	dir, port := t.TempDir(), strconv.Itoa(freePort(t))
	log, _ := start(t, "atoll-lab", append([]string{"member", "--dir", dir, "--name", "stranger", "--port", port, "--nodes", "1"}, flags...)...)
	ready := filepath.Join(dir, "ready")
	eventually(t, 2*converge, "one more member", func(context.Context) string {
		if _, err := os.Stat(ready); err != nil {
			return "it is not ready: " + log()
		}
		return ""
	})
	return filepath.Join(dir, "kubeconfig")
}

// says gives a check that a log has all the words.
func says(log func() string, words ...string) func(context.Context) string {
	return func(context.Context) string {
		text := log()
		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Sprintf("%q is not in:\n%s", w, text)
			}
		}
		return ""
	}
}

// Who shows what is wrong is refused, the hub logs why, and the person at the member
// reads what to do about it.
func TestWhoMayNotJoinIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	kubeconfig := stranger(t)
	hubLog := func() string {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(world.lab.Kubeconfig("hub")), "logs", "hub.log"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	run := func(name string, i invitation) (log func() string, stop func()) {
		t.Helper()
		return start(t, "atoll", "agent", "--name", name, "--hub", i.Hub, "--ca-hash", i.CAHash, "--token", i.Token, "--kubeconfig", kubeconfig)
	}
	// What the agent keeps of itself in the member goes, so that it is another agent.
	forget := func() {
		t.Helper()
		binary(t, "", "atoll-lab", "kubectl", "--kubeconfig", kubeconfig, "delete", "namespace", "atoll-system", "--ignore-not-found")
	}
	refused := func(name string, i invitation, cause string, told ...string) {
		t.Helper()
		log, stop := run(name, i)
		eventually(t, converge, name+" is told", says(log, told...))
		stop()
		if cause != "" {
			eventually(t, converge, "the hub's log says why", says(hubLog, "refused a join", name, cause))
		}
		if o, err := get(t.Context(), "hub", "atoll.dev/v1alpha1", "Cluster", "", name); err != nil || o != nil && name != "member1" {
			t.Errorf("%s got a Cluster although it was refused (%v)", name, err)
		}
	}
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "cluster", "guest", "--ignore-not-found")
	})

	good := invite(t)
	wrong := good
	wrong.CAHash = "sha256:" + strings.Repeat("0", 64)
	refused("wrong-ca", wrong, "", "CA")
	wrong = good
	wrong.Token = good.Token[:len(good.Token)-4] + "aaaa"
	refused("wrong-secret", wrong, "secret", "token is refused", "atoll token create")
	wrong.Token = "atoll1.aaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaa"
	refused("wrong-token", wrong, "no such token", "token is refused", "atoll token create")
	refused("wrong-name", invite(t, "--name-pattern", "shop-*"), "shop-*", "token is refused")
	short, made := invite(t, "--ttl", "1s"), time.Now()
	eventually(t, converge, "a token expires", func(context.Context) string {
		if time.Since(made) < time.Second {
			return "it is young"
		}
		return ""
	})
	refused("too-late", short, "expired", "token is refused", "atoll token create")
	refused("member1", good, "another agent", "another agent is connected as member1", "choose another name")
	eventually(t, converge, "the hub's administrator reads of it", func(context.Context) string {
		events := kubectl(t, "", "get", "events.v1.events.k8s.io", "-n", "default", "-o", "jsonpath={range .items[?(@.reason==\"NameTaken\")]}{.regarding.name}: {.note}{end}")
		if !strings.Contains(events, "member1: ") || !strings.Contains(events, "good token") { // other names may be taken too
			return events
		}
		return ""
	})

	// A token that lets one in lets in no second.
	one := invite(t)
	log, stop := run("guest", one)
	eventually(t, converge, "the guest waits", says(log, "atoll accept guest"))
	stop()
	forget()
	refused("second", one, "uses are spent", "token is refused", "atoll token create")
	refused2, stop2 := run("guest", invite(t))
	eventually(t, converge, "another agent of that name is told", says(refused2, "another agent has asked for the name guest"))
	stop2()
}

// An agent is cut off the moment it is denied, let in again, and refused for ever once
// its cluster is removed.
func TestDeniedAndRemovedAgentsAreCutOff(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "leaver")
	kubeconfig := stranger(t)
	i := invite(t)
	run := func() (log func() string, stop func()) {
		t.Helper()
		return start(t, "atoll", "agent", "--name", "leaver", "--hub", i.Hub, "--ca-hash", i.CAHash, "--token", i.Token, "--kubeconfig", kubeconfig)
	}
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "cluster", "leaver", "--ignore-not-found")
	})
	ready := func(want string) func(context.Context) string {
		return func(ctx context.Context) string {
			if c := condition(ctx, "atoll.dev/v1alpha1", "Cluster", "", "leaver", "Ready"); !strings.HasPrefix(c, want) {
				return "the output is: " + c
			}
			return ""
		}
	}
	member := func(args ...string) string {
		t.Helper()
		return binary(t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", kubeconfig}, args...)...)
	}
	log, stop := run()
	eventually(t, converge, "it asks", says(log, "atoll accept leaver"))
	if out := cli(t, "accept", "leaver"); !strings.Contains(out, "accepted") {
		t.Fatal(out)
	}
	eventually(t, converge, "it is in", ready("True"))
	apply(t, ns, selecting("web", "", "leaver")+"---"+settings)
	eventually(t, converge, "delivery", func(context.Context) string {
		if out := member("get", "configmap", "-n", ns, "web", "-o", "jsonpath={.data.colour}"); out != "blue" {
			return "the output is: " + out
		}
		return ""
	})

	if out := cli(t, "deny", "leaver"); !strings.Contains(out, "denied") {
		t.Fatal(out)
	}
	patch(t, "v1", "ConfigMap", ns, "web", `{"data":{"colour":"red"}}`)
	// Sooner than the hub would find out that it is gone.
	eventually(t, cutOffWithin, "it is cut off at once, and told", says(log, "refuses this agent", "atoll accept leaver"))
	eventually(t, cutOffWithin, "the hub shows it", func(ctx context.Context) string {
		if ready("True")(ctx) == "" {
			return "it is Ready"
		}
		return ""
	})
	if out := member("get", "configmap", "-n", ns, "web", "-o", "jsonpath={.data.colour}"); out != "blue" {
		t.Errorf("what was sent after the denial arrived, or was removed: %s", out)
	}

	giveUp(t, ns, "leaver")
	eventually(t, converge, "its rows go", func(context.Context) string {
		if out := cli(t, "get", "rows", "-n", ns); strings.Contains(out, "leaver ") && !strings.Contains(out, "no rows") {
			return "the output is: " + out
		}
		return ""
	})
	stop()
	back, stop := run()
	defer stop()
	eventually(t, converge, "it comes back and is refused", func(ctx context.Context) string {
		text := back()
		for _, w := range []string{"removed", "denied", "refuse"} {
			if strings.Contains(text, w) {
				return ""
			}
		}
		return "it is not told:\n" + text
	})
	if o, err := get(t.Context(), "hub", "atoll.dev/v1alpha1", "Cluster", "", "leaver"); err != nil || o != nil {
		t.Errorf("it is back on the hub (%v)", err)
	}
	if out := member("get", "configmap", "-n", ns, "web", "-o", "jsonpath={.data.colour}"); out != "blue" {
		t.Errorf("the member lost what it had: %s", out)
	}
}

// giveUp the cluster: what is in it stays and is listed.
func giveUp(t *testing.T, ns, name string) {
	t.Helper()
	if out := cli(t, "remove", name, "--dry-run"); !strings.Contains(out, "would be given up") || !strings.Contains(out, "ConfigMap") || !strings.Contains(out, ns+"/web") {
		t.Errorf("what would be left behind is not listed:\n%s", out)
	}
	if out := cli(t, "remove", name, "--force"); !strings.Contains(out, "is given up") || !strings.Contains(out, "ConfigMap") || !strings.Contains(out, ns) {
		t.Errorf("what is left behind is not listed:\n%s", out)
	}
}
