package plan

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/command/client"
)

const placedByFiles = `apiVersion: atoll.dev/v1alpha1
kind: Cluster
metadata: {name: oslo}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop, annotations: {atoll.dev/clusters: "*"}}
`

// TestKubeconfigChoosesHub checks when a hub is asked: never with --offline, and otherwise whenever a
// kubeconfig exists or is named.
func TestKubeconfigChoosesHub(t *testing.T) {
	unreachable := `apiVersion: v1
kind: Config
current-context: hub
clusters: [{name: hub, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: hub, context: {cluster: hub}}]
`
	for name, tc := range map[string]struct {
		home, env, flag bool // where a kubeconfig is; env and flag name an empty file without home
		args            []string
		asksHub         bool
		failure, notice string
	}{
		"no kubeconfig":                      {notice: "No kubeconfig: the plan is that of the files alone"},
		"no kubeconfig and offline":          {args: []string{"--offline"}},
		"in the home directory":              {home: true, asksHub: true, failure: "does not answer"},
		"in the home directory and offline":  {home: true, args: []string{"--offline"}},
		"the variable names an empty one":    {env: true, failure: "no kubeconfig"},
		"the flag names an empty one":        {flag: true, failure: "no kubeconfig"},
		"no kubeconfig and and a hub is due": {args: []string{"--state", "live"}, failure: "no kubeconfig"},
		"deleted objects and no kubeconfig":  {args: []string{"--delete", "FILE"}, failure: "what would be deleted is planned over what a hub has"},
		"a hub is due and and none is asked": {home: true, args: []string{"--state", "live", "--offline"}, failure: "none of the others can be"},
		"what is deleted needs the answer":   {home: true, args: []string{"--delete", "FILE"}, asksHub: true, failure: "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile := func(name, text string) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			home := clientcmd.RecommendedHomeFile
			t.Cleanup(func() { clientcmd.RecommendedHomeFile = home })
			clientcmd.RecommendedHomeFile = filepath.Join(dir, "none")
			if tc.home {
				clientcmd.RecommendedHomeFile = writeFile("config", unreachable)
			}
			t.Setenv(clientcmd.RecommendedConfigPathEnvVar, "")
			flags := &client.ConnectionFlags{}
			if tc.env {
				t.Setenv(clientcmd.RecommendedConfigPathEnvVar, writeFile("empty", ""))
			}
			if tc.flag {
				flags.Kubeconfig = writeFile("empty", "")
			}
			file := writeFile("files.yaml", placedByFiles)
			cmd := NewCommand(flags)
			var out, notices bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&notices)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			args := []string{"-f", file}
			for _, arg := range tc.args {
				args = append(args, strings.ReplaceAll(arg, "FILE", file))
			}
			cmd.SetArgs(args)
			err := cmd.ExecuteContext(t.Context())
			switch {
			case tc.failure == "":
				if !errors.Is(err, ErrChanges) || !strings.Contains(out.String(), "+ oslo") {
					t.Fatalf("error %v, want the plan of the files:\n%s", err, out.String())
				}
			case err == nil || !strings.Contains(err.Error(), tc.failure):
				t.Fatalf("error %v, want %q", err, tc.failure)
			}
			if tc.asksHub != (err != nil && strings.Contains(err.Error(), "127.0.0.1:1")) {
				t.Errorf("the hub is asked: %t, want %t: %v", !tc.asksHub, tc.asksHub, err)
			}
			if got := notices.String(); !strings.HasPrefix(got, tc.notice) || tc.notice == "" && got != "" {
				t.Errorf("notice %q, want %q", got, tc.notice)
			}
		})
	}
}
