package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// acceptTimeout bounds the wait for an agent's request to reach the hub.
	acceptTimeout = 2 * time.Minute
	inviteTimeout = 30 * time.Second
	// attemptPause is the pause between repeated commands, which would load the machine.
	attemptPause = 250 * time.Millisecond
)

// joinMembers starts the agents. New ones go through the handshake by the commands of the
// CLI.
func (l *Lab) joinMembers(ctx context.Context, r *labRecord) error {
	fresh := 0
	for _, m := range r.Members {
		if !m.Joined {
			fresh++
		}
	}
	if fresh > 0 {
		l.reportProgress("joining %d members", fresh)
		invited, err := r.createJoinToken(ctx, fresh)
		if err != nil {
			return err
		}
		if r, err = l.updateRecord(ctx, func(r *labRecord) { r.Invitation = invited }); err != nil {
			return err
		}
		if err := os.WriteFile(r.tokenFile(), []byte(invited.Token), 0o600); err != nil {
			return fmt.Errorf("write the join token for the agents: %w", err)
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range r.Members {
		group.Go(func() error { return l.joinMember(groupCtx, r, i) })
	}
	return group.Wait()
}

// joinMember starts one agent and waits until its cluster is Ready.
func (l *Lab) joinMember(ctx context.Context, r *labRecord, i int) error {
	m := r.Members[i]
	agent := r.agentComponent(&m)
	if m.Joined {
		return l.startComponents(ctx, agent)
	}
	// An agent left by an interrupted BringUp has a token of its own.
	if err := agent.process.KillProcess(ctx); err != nil {
		return err
	}
	if err := l.start(ctx, agent); err != nil {
		return err
	}
	if err := r.acceptMember(ctx, agent, m.Name); err != nil {
		return err
	}
	if err := r.setClusterRegionOnHub(ctx, m); err != nil {
		return err
	}
	if err := l.startComponents(ctx, agent); err != nil {
		return err
	}
	_, err := l.updateRecord(ctx, func(r *labRecord) { r.Members[i].Joined = true })
	return err
}

// createJoinToken creates a join token for that many uses. A hub needs a moment after its start
// until it has its gateway address.
func (r *labRecord) createJoinToken(ctx context.Context, uses int) (invitation, error) {
	var made invitation
	err := r.hubComponent().process.WaitReady(ctx, inviteTimeout, func(ctx context.Context) error {
		out, err := r.runCLI(ctx, "token", "create", "--ttl", "1h", "--uses", strconv.Itoa(uses), "-o", "json")
		if err != nil {
			return err
		}
		if err := json.Unmarshal(out, &made); err != nil || made.Token == "" || made.CAHash == "" {
			return fmt.Errorf("atoll token create -o json printed no token or no caHash: %w", err)
		}
		return nil
	})
	return made, err
}

// acceptMember accepts the cluster when its request arrives. It fails when the agent ends.
func (r *labRecord) acceptMember(ctx context.Context, agent component, name string) error {
	return agent.process.WaitReady(ctx, acceptTimeout, func(ctx context.Context) error {
		_, err := r.runCLI(ctx, "accept", name)
		return err
	})
}

// setClusterRegionOnHub sets the hub's fields of a member's Cluster.
func (r *labRecord) setClusterRegionOnHub(ctx context.Context, m memberRecord) error {
	if m.Region == "" {
		return nil
	}
	clusters, err := newHubClustersClient(r.kubeconfigPath(hubName))
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]string{"region": m.Region}},
		"spec":     map[string]any{"region": m.Region},
	})
	if err != nil {
		return err
	}
	if _, err := clusters.Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "atoll-lab"}); err != nil {
		return fmt.Errorf("set the region of cluster %s: %w", m.Name, err)
	}
	return nil
}

// runCLI runs the CLI against the hub and returns the output. It pauses after a failure,
// because the caller retries.
func (r *labRecord) runCLI(ctx context.Context, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, r.Binaries.Atoll, append([]string{"--kubeconfig", r.kubeconfigPath(hubName)}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		select {
		case <-ctx.Done():
		case <-time.After(attemptPause):
		}
		return nil, fmt.Errorf("atoll %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// newHubClustersClient returns a client of the hub's Clusters.
func newHubClustersClient(kubeconfig string) (dynamic.ResourceInterface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	config.Timeout = 10 * time.Second
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return client.Resource(schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "clusters"}), nil
}

// checkConditionTrue returns nil if the condition is True, else its state.
func checkConditionTrue(obj *unstructured.Unstructured, kind string) error {
	conditions, _, err := unstructured.NestedSlice(obj.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["type"] != kind {
			continue
		}
		if condition["status"] == "True" {
			return nil
		}
		return fmt.Errorf("its condition %s is %v: %v: %v", kind, condition["status"], condition["reason"], condition["message"])
	}
	return fmt.Errorf("it has no condition %s yet", kind)
}
