package join

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/trust/handshake"
)

// identityName is the Secret in a member with its agent's key, whichever process runs the agent.
const identityName = "atoll-agent-identity"

// checkMemberIdentity refuses a member that the hub has under another name, whose token would be
// withdrawn and whose agent would answer for two Clusters, and one that cannot be the Cluster
// which is connected under this name: mostly the kubeconfig is another member's.
func (o *joinOptions) checkMemberIdentity(ctx context.Context, member, hub *client.Connection) error {
	if o.force {
		return nil
	}
	names, err := recordedMemberNames(ctx, member)
	if err != nil {
		return err
	}
	if !names[o.name] {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			_, err := client.Get[v1alpha1.Cluster](ctx, hub, client.Clusters, "", name)
			if err == nil {
				return fmt.Errorf("%[1]s is cluster %[2]s of this hub, and is left as it is: is it another member's kubeconfig? To have it under the name %[3]s, end the other one first: atoll remove %[2]s --orphan. Where cluster %[2]s is another machine, add --force", member.Config.Host, name, o.name)
			}
			if !client.IsGone(err) {
				return err
			}
		}
	}
	return o.checkClusterNotConnectedElsewhere(ctx, member, hub)
}

// checkClusterNotConnectedElsewhere refuses to point a Cluster that is connected at a member where no agent ever
// worked.
func (o *joinOptions) checkClusterNotConnectedElsewhere(ctx context.Context, member, hub *client.Connection) error {
	now, err := client.Get[v1alpha1.Cluster](ctx, hub, client.Clusters, "", o.name)
	if client.IsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = client.Get[corev1.Secret](ctx, member, client.Secrets, atoll.SystemNamespace, identityName)
	if apierrors.IsNotFound(err) && meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ClusterReady) {
		return fmt.Errorf("cluster %[1]s is connected, and no agent ever worked on %[2]s: it is another machine. Choose another name for it; to have it in the place of that one, add --force, and accept it once more: atoll accept %[1]s", o.name, member.Config.Host)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// recordedMemberNames returns the names of a member, by what joins left there.
func recordedMemberNames(ctx context.Context, member *client.Connection) (map[string]bool, error) {
	names := map[string]bool{}
	pushed, err := client.List[corev1.Secret](ctx, member, client.Secrets, atoll.SystemNamespace, metav1.ListOptions{LabelSelector: handshake.LabelPush})
	if err != nil {
		return nil, fmt.Errorf("see which cluster the member is: %w", err)
	}
	for _, s := range pushed {
		names[s.Labels[handshake.LabelPush]] = true
	}
	joined, err := client.Get[corev1.Secret](ctx, member, client.Secrets, atoll.SystemNamespace, secretName)
	if err == nil && len(joined.Data["name"]) > 0 {
		names[string(joined.Data["name"])] = true
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return names, err
}
