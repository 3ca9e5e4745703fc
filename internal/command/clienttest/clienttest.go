// Package clienttest runs commands against API servers that a test makes up.
//
// Contract: what it makes is of one test and gone with it. A Text may be written and read by
// many at once.
package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/command/client"
)

// Run runs a command with arguments until it ends, or ctx does. Its kubeconfig leads to the
// handler, with the namespace "shop".
func Run(ctx context.Context, t *testing.T, h http.Handler, command func(*client.ConnectionFlags) *cobra.Command, said Said, args ...string) error {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: hub\nclusters: [{name: hub, cluster: {server: %q}}]\ncontexts: [{name: hub, context: {cluster: hub, namespace: shop, user: u}}]\nusers: [{name: u, user: {token: t}}]\n", server.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(&client.ConnectionFlags{Kubeconfig: file})
	cmd.SetArgs(args)
	cmd.SetOut(said.Out)
	cmd.SetErr(said.Notes)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.ExecuteContext(ctx)
}

// RunForOutput is Run until the test ends. It returns what the command prints, without its notes.
func RunForOutput(t *testing.T, h http.Handler, command func(*client.ConnectionFlags) *cobra.Command, args ...string) (out string, err error) {
	t.Helper()
	text := NewWriteLimitedBuffer()
	err = Run(t.Context(), t, h, command, Said{Out: text, Notes: NewWriteLimitedBuffer()}, args...)
	return text.String(), err
}

// Said is what a command prints.
type Said struct{ Out, Notes *OutputBuffer }

// ServeDiscovery answers requests for discovery; false: the request is another one. It
// answers group by group, as old API servers do.
func ServeDiscovery(w http.ResponseWriter, r *http.Request, lists ...metav1.APIResourceList) bool {
	answer := func(v any) bool {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // the client has gone
		return true
	}
	of := metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, l := range lists {
		group, version, _ := strings.Cut(l.GroupVersion, "/")
		if version == "" {
			if r.URL.Path == "/api/"+group {
				return answer(metav1.APIResourceList{TypeMeta: of, GroupVersion: l.GroupVersion, APIResources: l.APIResources})
			}
			continue
		}
		if r.URL.Path == "/apis/"+l.GroupVersion {
			return answer(metav1.APIResourceList{TypeMeta: of, GroupVersion: l.GroupVersion, APIResources: l.APIResources})
		}
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: l.GroupVersion, Version: version}}})
	}
	switch r.URL.Path {
	case "/api":
		return answer(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case "/api/v1":
		return answer(metav1.APIResourceList{TypeMeta: of, GroupVersion: "v1"})
	case "/apis":
		return answer(groups)
	}
	return false
}

// ErrFull: a Text takes no more.
var ErrFull = errors.New("no room is left")

// OutputBuffer is a text that is written and read concurrently.
type OutputBuffer struct {
	mu      sync.Mutex
	all     strings.Builder
	room    int           // for so many writes; negative: any number
	changed chan struct{} // closed at the next write
}

// NewWriteLimitedBuffer takes so many writes, or any number where none is given.
func NewWriteLimitedBuffer(room ...int) *OutputBuffer {
	t := &OutputBuffer{room: -1, changed: make(chan struct{})}
	if len(room) > 0 {
		t.room = room[0]
	}
	return t
}

// Write writes the data at the end.
func (x *OutputBuffer) Write(data []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.room == 0:
		return 0, ErrFull
	case x.room > 0:
		x.room--
	}
	close(x.changed)
	x.changed = make(chan struct{})
	return x.all.Write(data)
}

// String is all that was written.
func (x *OutputBuffer) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all.String()
}

// WaitFor waits until the words are there.
func (x *OutputBuffer) WaitFor(t *testing.T, words string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		x.mu.Lock()
		all, changed := x.all.String(), x.changed
		x.mu.Unlock()
		if strings.Contains(all, words) {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%q is not said, but\n%s", words, all)
		}
	}
}
