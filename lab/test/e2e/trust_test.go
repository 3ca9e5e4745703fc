package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

// tokenInvitation is what `atoll token create -o json` prints.
type tokenInvitation struct{ Token, Hub, CAHash string }

func createToken(t *testing.T, flags ...string) tokenInvitation {
	t.Helper()
	out := runCLI(t, append([]string{"token", "create", "-o", "json"}, flags...)...)
	var i tokenInvitation
	if err := json.Unmarshal([]byte(out), &i); err != nil {
		t.Fatalf("atoll token create: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		binaryFor(context.WithoutCancel(t.Context()), t, "", "atoll", "token", "delete", i.Token, "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"))
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
	endWithTest(cmd)
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

// cutOffWithin bounds the time until an agent learns its exclusion: less than the hub needs
// to find a half-open link.
const cutOffWithin = 15 * time.Second

// startStranger starts one more member without a Cluster, with more flags, and returns its
// kubeconfig.
func startStranger(t *testing.T, flags ...string) string {
	t.Helper()
	dir, port := t.TempDir(), strconv.Itoa(freePort(t))
	log, _ := start(t, "atoll-lab", append([]string{"member", "--dir", dir, "--name", "stranger", "--port", port, "--nodes", "1"}, flags...)...)
	ready := filepath.Join(dir, "ready")
	testwait.UntilNilWithin(t, 2*testwait.HangLimit, "one more member", func(context.Context) error {
		if _, err := os.Stat(ready); err != nil {
			return errors.New("it is not ready: " + log())
		}
		return nil
	})
	return filepath.Join(dir, "kubeconfig")
}

// logSays returns a check that a log has all the words.
func logSays(log func() string, words ...string) func(context.Context) error {
	return func(context.Context) error {
		text := log()
		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Errorf("%q is not in:\n%s", w, text)
			}
		}
		return nil
	}
}

// A wrong credential is refused, the hub logs the reason, and the person at the member
// reads the remedy.
func TestARefusedAgentLogsTheRemedy(t *testing.T) {
	t.Parallel()
	kubeconfig := startStranger(t)
	hubLog := func() string {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(sharedWorld.lab.KubeconfigPath("hub")), "logs", "hub.log"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	run := func(name string, i tokenInvitation) (log func() string, stop func()) {
		t.Helper()
		return start(t, "atoll", "agent", "--name", name, "--hub", i.Hub, "--ca-hash", i.CAHash, "--token", i.Token, "--kubeconfig", kubeconfig)
	}
	// The agent's stored identity is deleted, so that it is another agent.
	forget := func() {
		t.Helper()
		binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", kubeconfig, "delete", "namespace", "atoll-system", "--ignore-not-found")
	}
	refused := func(name string, i tokenInvitation, cause string, logged ...string) {
		t.Helper()
		log, stop := run(name, i)
		testwait.UntilNil(t, name+" logs the remedy", logSays(log, logged...))
		stop()
		if cause != "" {
			testwait.UntilNil(t, "the hub's log says why", logSays(hubLog, "refused a join", name, cause))
		}
		if o, err := get(t.Context(), "hub", "atoll.dev/v1alpha1", "Cluster", "", name); err != nil || o != nil && name != "member1" {
			t.Errorf("%s got a Cluster although it was refused (%v)", name, err)
		}
	}
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "cluster", "guest", "--ignore-not-found")
	})

	good := createToken(t)
	wrong := good
	wrong.CAHash = "sha256:" + strings.Repeat("0", 64)
	refused("wrong-ca", wrong, "", "CA")
	wrong = good
	wrong.Token = good.Token[:len(good.Token)-4] + "aaaa"
	refused("wrong-secret", wrong, "secret", "token is refused", "atoll token create")
	wrong.Token = "atoll1.aaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaa"
	refused("wrong-token", wrong, "no such token", "token is refused", "atoll token create")
	refused("wrong-name", createToken(t, "--name-pattern", "shop-*"), "shop-*", "token is refused")
	short, made := createToken(t, "--ttl", "1s"), time.Now()
	testwait.UntilNil(t, "a token expires", func(context.Context) error {
		if time.Since(made) < time.Second {
			return errors.New("it is young")
		}
		return nil
	})
	refused("too-late", short, "expired", "token is refused", "atoll token create")
	refused("member1", good, "another agent", "another agent is connected as member1", "choose another name")
	testwait.UntilNil(t, "the hub's administrator reads of it", func(context.Context) error {
		events := kubectlOutput(t, "", "get", "events.v1.events.k8s.io", "-n", "default", "-o", "jsonpath={range .items[?(@.reason==\"NameTaken\")]}{.regarding.name}: {.note}{end}")
		if !strings.Contains(events, "member1: ") || !strings.Contains(events, "good token") { // other names may be taken too
			return fmt.Errorf("the Events are: %s", events)
		}
		return nil
	})

	// A token that lets one in lets in no second.
	one := createToken(t)
	log, stop := run("guest", one)
	testwait.UntilNil(t, "the guest waits", logSays(log, "atoll accept guest"))
	stop()
	forget()
	refused("second", one, "uses are spent", "token is refused", "atoll token create")
	refused2, stop2 := run("guest", createToken(t))
	testwait.UntilNil(t, "another agent of that name logs it", logSays(refused2, "another agent has requested the name guest"))
	stop2()
}

// An agent is cut off the moment it is denied, let in again, and refused for ever once
// its cluster is removed.
func TestDeniedAndRemovedAgentsAreCutOff(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "leaver")
	kubeconfig := startStranger(t)
	i := createToken(t)
	installAgent(t, kubeconfig, "leaver", i)
	run := func() (log func() string, stop func()) {
		t.Helper()
		return start(t, "atoll", "agent", "--name", "leaver", "--hub", i.Hub, "--ca-hash", i.CAHash, "--token-secret", joinSecret, "--kubeconfig", kubeconfig)
	}
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "cluster", "leaver", "--ignore-not-found")
	})
	colour := func(want string) func(context.Context) error {
		return func(context.Context) error {
			out := binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", kubeconfig, "get", "configmap", "-n", ns, "web", "-o", "jsonpath={.data.colour}")
			if out != want {
				return errors.New("the member has: " + out)
			}
			return nil
		}
	}
	log, stop := run()
	testwait.UntilNil(t, "it asks", logSays(log, "atoll accept leaver"))
	if out := runCLI(t, "accept", "leaver"); !strings.Contains(out, "accepted") {
		t.Fatal(out)
	}
	testwait.UntilNil(t, "it is in", readyIs("leaver", "True"))
	apply(t, ns, selectingPolicy("web", "", "leaver")+"---"+settingsObject)
	testwait.UntilNil(t, "delivery", colour("blue"))
	checkTokenGone(t, kubeconfig, i)
	stop()
	log, stop = run() // without a token
	for _, next := range []string{"green", "blue"} {
		patch(t, "v1", "ConfigMap", ns, "web", `{"data":{"colour":"`+next+`"}}`)
		testwait.UntilNil(t, "delivery after a restart", colour(next))
	}

	if out := runCLI(t, "deny", "leaver"); !strings.Contains(out, "denied") {
		t.Fatal(out)
	}
	patch(t, "v1", "ConfigMap", ns, "web", `{"data":{"colour":"red"}}`)
	// Sooner than the hub would find out that it is gone.
	testwait.UntilNilWithin(t, cutOffWithin, "it is cut off at once, and logs the reason", logSays(log, "refuses this agent", "atoll accept leaver"))
	testwait.UntilNilWithin(t, cutOffWithin, "the hub shows it", func(ctx context.Context) error {
		got := conditionText(ctx, "atoll.dev/v1alpha1", "Cluster", "", "leaver", "Ready")
		if !strings.HasPrefix(got, "False") && !strings.HasPrefix(got, "Unknown") {
			return fmt.Errorf("its condition Ready is: %s", got)
		}
		return nil
	})
	if err := colour("blue")(t.Context()); err != nil {
		t.Errorf("what was sent after the denial arrived, or was removed: %s", err)
	}

	giveUp(t, ns, "leaver")
	testwait.UntilNil(t, "its rows go", func(context.Context) error {
		if out := runCLI(t, "get", "rows", "-n", ns); strings.Contains(out, "leaver ") && !strings.Contains(out, "no rows") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	stop()
	back, stop := run()
	defer stop()
	testwait.UntilNil(t, "it comes back and is refused", func(ctx context.Context) error {
		text := back()
		if slices.ContainsFunc([]string{"removed", "denied", "refuse"}, func(w string) bool { return strings.Contains(text, w) }) {
			return nil
		}
		return errors.New("it does not log it:\n" + text)
	})
	if o, err := get(t.Context(), "hub", "atoll.dev/v1alpha1", "Cluster", "", "leaver"); err != nil || o != nil {
		t.Errorf("it is back on the hub (%v)", err)
	}
	if err := colour("blue")(t.Context()); err != nil {
		t.Errorf("the member lost what it had: %s", err)
	}
}

// joinSecret is the Secret in which "atoll join" puts the token in a member.
const joinSecret = "atoll-agent-join"

// installAgent installs the agent in a member, whose nodes run no containers: the test runs the
// agent with the token of the Secret.
func installAgent(t *testing.T, kubeconfig, name string, i tokenInvitation) {
	t.Helper()
	binaryOutput(t, i.Token+"\n", "atoll", "join", name, "--kubeconfig", kubeconfig, "--hub", i.Hub, "--ca-hash", i.CAHash, "--token-file", "-", "--timeout", "0")
	if stored := binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", kubeconfig, "get", "secret", joinSecret, "-n", "atoll-system", "-o", "go-template={{.data.token|base64decode}}"); stored != i.Token {
		t.Fatalf("the member's Secret holds the token %q", stored)
	}
}

// checkTokenGone waits until a member's Secret holds no token, and still what a restart needs.
func checkTokenGone(t *testing.T, kubeconfig string, i tokenInvitation) {
	t.Helper()
	id := strings.Split(i.Token, ".")[1]
	testwait.UntilNil(t, "the token is removed from the member", func(context.Context) error {
		out := binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", kubeconfig, "get", "secret", joinSecret, "-n", "atoll-system",
			"-o", `go-template={{range $key, $value := .data}}{{$key}} {{end}}{{index .metadata.annotations "agent.atoll.dev/removed-token"}}`)
		if out != "balancerCA caHash hub name "+id {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	if out := binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", kubeconfig, "get", "secrets", "-A", "-o", "json"); strings.Contains(out, base64.StdEncoding.EncodeToString([]byte(i.Token))) {
		t.Error("the token is in another Secret of the member")
	}
}

// TestAMemberJoinsAgainByANewToken: after it was removed from the fleet, by the Secret that an
// installation with a new token writes.
func TestAMemberJoinsAgainByANewToken(t *testing.T) {
	t.Parallel()
	kubeconfig := startStranger(t)
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "cluster", "returner", "--ignore-not-found")
	})
	for range 2 {
		i := createToken(t, "--auto-accept")
		installAgent(t, kubeconfig, "returner", i)
		// The token's ID in the pod template restarts the agent in members that run containers.
		out := binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", kubeconfig, "get", "deployment", "atoll-agent", "-n", "atoll-system",
			"-o", `jsonpath={.spec.template.metadata.annotations.agent\.atoll\.dev/join-token}`)
		if out != strings.Split(i.Token, ".")[1] {
			t.Errorf("the agent's pod is of token %q", out)
		}
		_, stop := start(t, "atoll", "agent", "--name", "returner", "--hub", i.Hub, "--ca-hash", i.CAHash, "--token-secret", joinSecret, "--kubeconfig", kubeconfig)
		testwait.UntilNil(t, "it is in", readyIs("returner", "True"))
		checkTokenGone(t, kubeconfig, i)
		if out := runCLI(t, "remove", "returner", "--orphan", "--timeout", "1m"); !strings.Contains(out, "has left the fleet") {
			t.Fatal(out)
		}
		stop()
	}
}

// giveUp removes the cluster from the fleet: its content stays and is listed.
func giveUp(t *testing.T, ns, name string) {
	t.Helper()
	if out := runCLI(t, "remove", name, "--dry-run"); !strings.Contains(out, "would be given up") || !strings.Contains(out, "ConfigMap") || !strings.Contains(out, ns+"/web") {
		t.Errorf("what would be left behind is not listed:\n%s", out)
	}
	if out := runCLI(t, "remove", name, "--force"); !strings.Contains(out, "is given up") || !strings.Contains(out, "ConfigMap") || !strings.Contains(out, ns) {
		t.Errorf("what is left behind is not listed:\n%s", out)
	}
}
