package kubeconfig_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/kubeconfig"
)

func newFleet(t *testing.T) *clienttest.FakeHub {
	return clienttest.NewFakeHub(t, map[string]string{
		"atoll.dev/clusters/tokyo": "{metadata: {labels: {region: asia}}, spec: {accepted: true}}",
		"atoll.dev/clusters/oslo":  "{metadata: {labels: {region: europe}}, spec: {accepted: true}}",
		"atoll.dev/clusters/new":   "{metadata: {labels: {region: asia}}, spec: {accepted: false}}",
		"atoll.dev/clusters/rare":  "{metadata: {labels: {region: asia}}, spec: {accepted: true, connection: {type: CheckIn, interval: 15m}}}",
	})
}

// run runs the command; extra is merged into the kubeconfig before.
func run(t *testing.T, extra string, args ...string) (out, file string, err error) {
	t.Helper()
	command := func(flags *client.ConnectionFlags) *cobra.Command {
		file = flags.Kubeconfig
		if extra != "" {
			first, err := clientcmd.LoadFromFile(file)
			if err != nil {
				t.Fatal(err)
			}
			second, err := clientcmd.Load([]byte(extra))
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(first.Clusters, second.Clusters)
			maps.Copy(first.Contexts, second.Contexts)
			if second.CurrentContext != "" {
				first.CurrentContext = second.CurrentContext
			}
			if err := clientcmd.WriteToFile(*first, file); err != nil {
				t.Fatal(err)
			}
		}
		return kubeconfig.NewCommand(flags)
	}
	out, err = clienttest.RunForOutput(t, newFleet(t), command, args...)
	return out, file, err
}

// A member's context is the hub's with another address; only clusters that can be reached have one.
func TestContextsLeadThroughTheHub(t *testing.T) {
	for args, c := range map[string]struct {
		contexts []string
		current  string
	}{
		"":                               {[]string{"hub"}, "hub"},
		"--cluster tokyo":                {[]string{"tokyo"}, "tokyo"},
		"--cluster tokyo,oslo,tokyo":     {[]string{"oslo", "tokyo"}, ""},
		"--cluster rare":                 {[]string{"rare"}, "rare"},
		"--cluster tokyo --prefix prod-": {[]string{"prod-tokyo"}, "prod-tokyo"},
		"--all":                          {[]string{"oslo", "tokyo"}, ""},
		"--all -l region=asia":           {[]string{"tokyo"}, "tokyo"},
	} {
		out, file, err := run(t, "", strings.Fields(args)...)
		if err != nil {
			t.Errorf("%q: %v", args, err)
			continue
		}
		got, err := clientcmd.Load([]byte(out))
		if err != nil {
			t.Fatal(err)
		}
		hub, err := clientcmd.LoadFromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if is := slices.Sorted(maps.Keys(got.Contexts)); !slices.Equal(is, c.contexts) || got.CurrentContext != c.current {
			t.Errorf("%q: contexts %q, current %q; want %q, %q", args, is, got.CurrentContext, c.contexts, c.current)
		}
		if len(got.AuthInfos) != 1 || got.AuthInfos["u"].Token != "t" {
			t.Errorf("%q: users are %v", args, got.AuthInfos)
		}
		for name, cluster := range got.Clusters {
			rest, ok := strings.CutPrefix(cluster.Server, hub.Clusters["hub"].Server)
			if member := strings.TrimPrefix(name, "prod-"); !ok || name != "hub" && !strings.Contains(rest, "/"+member+"/") || name == "hub" && rest != "" {
				t.Errorf("%q: %s is at %s", args, name, cluster.Server)
			}
		}
	}
}

func TestKubeconfigRefuses(t *testing.T) {
	member := "clusters: [{name: m, cluster: {server: \"https://hub/apis/atoll.dev/v1alpha1/clusters/tokyo/proxy\"}}]\ncontexts: [{name: m, context: {cluster: m, user: u}}]\ncurrent-context: m\n"
	for name, c := range map[string]struct{ extra, args, want string }{
		"a selector alone":       {"", "-l a=b", "give --all, too"},
		"an unknown cluster":     {"", "--cluster rome", "rome"},
		"no cluster fits":        {"", "--all -l region=africa", "no such cluster"},
		"a missing cluster":      {"contexts: [{name: m, context: {cluster: gone}}]\ncurrent-context: m\n", "--cluster tokyo", `names a cluster "gone"`},
		"a merge of nothing":     {"", "--merge", "--merge adds contexts of members"},
		"a cluster of the name":  {"clusters: [{name: tokyo, cluster: {server: \"https://other\"}}]\n", "--cluster tokyo --merge", `another cluster called "tokyo"`},
		"a context of the name":  {"contexts: [{name: tokyo, context: {cluster: hub}}]\n", "--cluster tokyo --merge", `another context called "tokyo"`},
		"one cluster and all":    {"", "--cluster tokyo --all", "none of the others can be"},
		"a context of a member":  {member, "--cluster tokyo", "is a member's, reached through a hub"},
		"a context that is gone": {"current-context: gone\n", "--cluster tokyo", `no context "gone"; it has hub`},
	} {
		t.Run(name, func(t *testing.T) {
			if out, _, err := run(t, c.extra, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
				t.Errorf("%q, %v, want %q", out, err, c.want)
			}
		})
	}
}

// A merge adds contexts, and keeps the current one and those of others.
func TestAMergeKeepsWhatIsThere(t *testing.T) {
	out, file, err := run(t, "clusters: [{name: other, cluster: {server: \"https://other\"}}]\ncontexts: [{name: other, context: {cluster: other}}]\n", "--all", "--merge")
	if err != nil || !strings.Contains(out, "2 contexts written to "+file) {
		t.Fatalf("%q, %v", out, err)
	}
	got, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if is := slices.Sorted(maps.Keys(got.Contexts)); !slices.Equal(is, []string{"hub", "oslo", "other", "tokyo"}) || got.CurrentContext != "hub" || got.Clusters["other"].Server != "https://other" {
		t.Errorf("contexts %q, current %q", is, got.CurrentContext)
	}
	if leftovers, err := filepath.Glob(file + ".lock"); err != nil || len(leftovers) > 0 {
		t.Errorf("it leaves %q, %v", leftovers, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}
