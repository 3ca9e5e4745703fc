package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/trust/handshake"
)

// pushFlags is what --push needs.
type pushFlags struct {
	on, accept, standby bool
	hub                 client.ConnectionFlags
	server              string
}

func (p *pushFlags) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&p.on, "push", false, "let the hub run the agent, by credentials of the member")
	f.StringVar(&p.hub.Kubeconfig, "hub-kubeconfig", "", "with --push: kubeconfig of the hub (default: $KUBECONFIG, then ~/.kube/config)")
	f.StringVar(&p.hub.Context, "hub-context", "", "with --push: context in it (default: its current one)")
	f.StringVar(&p.server, "member-server", "", "with --push: URL at which the hub reaches the member's API (default: the kubeconfig's)")
	f.BoolVar(&p.accept, "accept", false, "with --push: let the cluster in at once, as 'atoll accept' does")
	f.BoolVar(&p.standby, "standby", false, "with --push: leave an agent that runs in the member; one works and the other stands by")
}

// checkModeFlags refuses flags that do not go together.
func (o *joinOptions) checkModeFlags() error {
	p := o.push
	switch {
	case p.on:
		return o.checkPushFlags()
	case p.hub != client.ConnectionFlags{}, p.server != "", p.accept, p.standby:
		return errors.New("--hub-kubeconfig, --hub-context, --member-server, --accept and --standby go with --push")
	case o.hub == "", o.caHash == "", o.token == "":
		return errors.New("--hub, --ca-hash and --token-file are needed, as `atoll token create` on the hub prints them; or --push")
	}
	return nil
}

// checkPushFlags refuses flags that do not go with --push.
func (o *joinOptions) checkPushFlags() error {
	switch {
	case o.hub != "", o.caHash != "", o.tokenFlags.AreSet(), o.balancerCA != "", o.print:
		return errors.New("--hub, --ca-hash, --token, --balancer-ca and --print are for an agent that runs in the member, not for --push")
	case o.flags.Kubeconfig == "" && o.flags.Context == "":
		return errors.New("name the member by --kubeconfig or --context; the hub is chosen by --hub-kubeconfig and --hub-context")
	}
	return nil
}

// runPush stores on the hub what its agent needs, and switches the cluster over.
func (o *joinOptions) runPush(ctx context.Context, out io.Writer) error {
	member, hub, err := o.connectMemberAndHub(ctx)
	if err != nil {
		return err
	}
	credentials, err := o.memberCredentials(member.Config)
	if err != nil {
		return err
	}
	if err := o.checkMemberIdentity(ctx, member, hub); err != nil {
		return err
	}
	minted, err := o.prepareMemberForPush(ctx, member, out)
	if err != nil {
		return err
	}
	credentials.Token = string(minted.Data[corev1.ServiceAccountTokenKey])
	cluster, err := o.storeCredentials(ctx, hub, credentials)
	if err != nil {
		return fmt.Errorf("%w; the token that was made in the member, Secret %s/%s, is of no use and may be deleted", hub.ExplainError(err), minted.Namespace, minted.Name)
	}
	fmt.Fprintf(out, "the hub at %s runs the agent of cluster %s, as ServiceAccount %s/%s of %s\n", hub.Config.Host, o.name, atoll.SystemNamespace, agentName, credentials.Server)
	if err := o.acceptClusterIfAsked(ctx, hub, cluster); err != nil {
		return err
	}
	if cluster.Spec.Accepted {
		if err := o.deleteMemberAgent(ctx, member, out); err != nil {
			return err
		}
		if err := o.waitPushAgentReady(ctx, hub, out); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(out, "let it in on the hub:\n\n  atoll accept %s\n", o.name)
	}
	return deleteOldPushTokens(ctx, member, minted.Name)
}

// acceptClusterIfAsked accepts the cluster, if the flags request it.
func (o *joinOptions) acceptClusterIfAsked(ctx context.Context, hub *client.Connection, cluster *v1alpha1.Cluster) error {
	if !o.push.accept {
		return nil
	}
	admin := handshake.Admin{Hub: hub.Dynamic}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { _, err := admin.AcceptCluster(ctx, o.name); return err })
	cluster.Spec.Accepted = err == nil
	return hub.ExplainError(err)
}

// connectMemberAndHub connects to both clusters, and makes sure which is which.
func (o *joinOptions) connectMemberAndHub(ctx context.Context) (member, hub *client.Connection, err error) {
	if member, err = o.flags.LoadClusterConnection(); err != nil {
		return nil, nil, fmt.Errorf("the member: %w", err)
	}
	if hub, err = o.push.hub.LoadClusterConnection(); err != nil {
		return nil, nil, fmt.Errorf("the hub (--hub-kubeconfig): %w", err)
	}
	info, err := client.Get[corev1.ConfigMap](ctx, hub, client.ConfigMaps, atoll.SystemNamespace, "hub-info")
	if apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("%s is no hub: give the hub's kubeconfig by --hub-kubeconfig; --kubeconfig is the member's", hub.Config.Host)
	}
	if err != nil {
		return nil, nil, err
	}
	o.caHash = info.Data["caHash"]
	return member, hub, o.checkJoinTarget(ctx, member)
}

// memberCredentials returns how the hub reaches the member: as the kubeconfig does, except for the
// user.
func (o *joinOptions) memberCredentials(config *rest.Config) (handshake.Credentials, error) {
	c := handshake.Credentials{Server: strings.TrimRight(config.Host, "/"), CA: string(config.CAData), ServerName: config.ServerName}
	if o.push.server != "" {
		c.Server = strings.TrimRight(o.push.server, "/")
	}
	if config.Insecure {
		return c, errors.New("the member's kubeconfig has insecure-skip-tls-verify: the hub hands its token only to a verified server; put the certificate-authority of the member's API there")
	}
	if c.CA == "" && config.CAFile != "" {
		ca, err := os.ReadFile(config.CAFile)
		if err != nil {
			return c, fmt.Errorf("the member's kubeconfig: %w", err)
		}
		c.CA = string(ca)
	}
	if config.Proxy != nil {
		at, err := url.Parse(c.Server)
		if err != nil {
			return c, fmt.Errorf("the member's server: %w", err)
		}
		proxy, err := config.Proxy(&http.Request{URL: at})
		if err != nil {
			return c, fmt.Errorf("the member's kubeconfig: proxy-url: %w", err)
		}
		if proxy != nil {
			c.ProxyURL = proxy.String()
		}
	}
	asked := c
	asked.Token = "to-be-made"
	return c, asked.Validate()
}

// tokenTimeout is for how long the member may take to fill a token in.
const tokenTimeout = 30 * time.Second

// prepareMemberForPush makes the ServiceAccount with the rights of an agent, the AgentPolicy, and a new token.
func (o *joinOptions) prepareMemberForPush(ctx context.Context, member *client.Connection, out io.Writer) (*corev1.Secret, error) {
	objects, err := o.agentManifests()
	if err != nil {
		return nil, err
	}
	var needed []*unstructured.Unstructured
	for _, u := range objects {
		switch u.GetKind() {
		case "Secret", "Deployment", "NetworkPolicy": // of an agent that runs there
		default:
			needed = append(needed, u)
		}
	}
	if err := o.installObjects(ctx, member, needed, out); err != nil {
		return nil, err
	}
	made, err := client.Create(ctx, member, client.Secrets, "Secret", &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: atoll.SystemNamespace, GenerateName: agentName + "-push-", Labels: map[string]string{handshake.LabelPush: o.name},
			Annotations: map[string]string{corev1.ServiceAccountNameKey: agentName},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	})
	if err != nil {
		return nil, fmt.Errorf("make a token of the member: %w", err)
	}
	name := made.Name
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, tokenTimeout, true, func(ctx context.Context) (bool, error) {
		if made, err = client.Get[corev1.Secret](ctx, member, client.Secrets, atoll.SystemNamespace, name); err != nil {
			return false, err
		}
		return len(made.Data[corev1.ServiceAccountTokenKey]) > 0, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil, fmt.Errorf("the member has put no token into Secret %s/%s within %s; does its controller manager run?", atoll.SystemNamespace, name, tokenTimeout)
	}
	return made, err
}

// storeCredentials stores the credentials on the hub, creates the Cluster if it is missing, and
// sets its mode to Push.
func (o *joinOptions) storeCredentials(ctx context.Context, hub *client.Connection, credentials handshake.Credentials) (*v1alpha1.Cluster, error) {
	cluster, err := client.Get[v1alpha1.Cluster](ctx, hub, client.Clusters, "", o.name)
	if client.IsGone(err) {
		cluster, err = o.createPushCluster(ctx, hub)
	}
	if err != nil {
		return nil, err
	}
	secret, err := handshake.NewPushSecret(cluster.Name, cluster.UID, credentials)
	if err != nil {
		return nil, err
	}
	if _, err := client.Create(ctx, hub, client.Secrets, "Secret", secret); err != nil {
		return nil, fmt.Errorf("give the hub credentials: %w", err)
	}
	if cluster.Spec.Mode == v1alpha1.ModePush {
		return cluster, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": cluster.UID},
		"spec":     map[string]any{"mode": v1alpha1.ModePush},
	})
	if err != nil {
		return nil, err
	}
	if _, err = hub.Dynamic.Resource(client.Clusters).Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return nil, fmt.Errorf("set spec.mode of cluster %s: %w", o.name, err)
	}
	return cluster, nil
}

func (o *joinOptions) createPushCluster(ctx context.Context, hub *client.Connection) (*v1alpha1.Cluster, error) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Cluster",
		"metadata": map[string]any{"name": o.name}, "spec": map[string]any{"mode": string(v1alpha1.ModePush)},
	}}
	made, err := hub.Dynamic.Resource(client.Clusters).Create(ctx, u, metav1.CreateOptions{FieldManager: "atoll-join"})
	if err != nil {
		return nil, fmt.Errorf("make cluster %s on the hub: %w", o.name, err)
	}
	cluster := &v1alpha1.Cluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(made.Object, cluster); err != nil {
		return nil, fmt.Errorf("cluster %s on the hub: %w", o.name, err)
	}
	return cluster, nil
}

// deleteOldPushTokens drops the tokens that earlier joins made in the member.
func deleteOldPushTokens(ctx context.Context, member *client.Connection, keep string) error {
	earlier, err := client.List[corev1.Secret](ctx, member, client.Secrets, atoll.SystemNamespace, metav1.ListOptions{LabelSelector: handshake.LabelPush})
	if err != nil {
		return fmt.Errorf("list earlier tokens in the member: %w", err)
	}
	for _, s := range earlier {
		if s.Name == keep || s.Type != corev1.SecretTypeServiceAccountToken {
			continue
		}
		if err := member.Dynamic.Resource(client.Secrets).Namespace(atoll.SystemNamespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("withdraw an earlier token in the member: %w", member.ExplainError(err))
		}
	}
	return nil
}

// printStandbyNote prints which agent works in a member, when an agent is installed where the hub has
// credentials.
func (o *joinOptions) printStandbyNote(ctx context.Context, member *client.Connection, out io.Writer) error {
	given, err := client.List[corev1.Secret](ctx, member, client.Secrets, atoll.SystemNamespace, metav1.ListOptions{LabelSelector: handshake.LabelPush})
	if err != nil || len(given) == 0 {
		return err
	}
	_, err = fmt.Fprintf(out, `the hub may run an agent of this cluster, too: one of the two works, the other stands by.
To go over to the one in the member, on the hub:

  kubectl patch cluster %s --type merge -p '{"spec":{"mode":"Pull"}}'

`, given[0].Labels[handshake.LabelPush])
	return err
}

// deleteMemberAgent ends an agent that runs in the member, unless it is to stand by.
func (o *joinOptions) deleteMemberAgent(ctx context.Context, member *client.Connection, out io.Writer) error {
	if o.push.standby {
		return nil
	}
	err := member.Dynamic.Resource(client.Deployments).Namespace(atoll.SystemNamespace).Delete(ctx, agentName, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete the agent that runs in the member: %w", member.ExplainError(err))
	}
	if err := member.Dynamic.Resource(client.Secrets).Namespace(atoll.SystemNamespace).Delete(ctx, secretName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the agent's join Secret: %w", member.ExplainError(err))
	}
	_, err = fmt.Fprintln(out, "the agent that ran in the member is deleted; the hub's takes over")
	return err
}

// waitPushAgentReady waits until the hub's agent works. The error is what prevents it.
func (o *joinOptions) waitPushAgentReady(ctx context.Context, hub *client.Connection, out io.Writer) error {
	if o.timeout == 0 {
		return nil
	}
	why := "the hub has not reported on it yet"
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, o.timeout, true, func(ctx context.Context) (bool, error) {
		now, err := client.Get[v1alpha1.Cluster](ctx, hub, client.Clusters, "", o.name)
		if err != nil {
			return false, err
		}
		pushed := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ClusterPushed)
		if pushed == nil {
			return false, nil
		}
		why = pushed.Reason + ": " + pushed.Message
		return pushed.Status == metav1.ConditionTrue && meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ClusterReady), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("cluster %s is not Ready within %s: %s", o.name, o.timeout, strings.TrimSuffix(why, ": "))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "cluster %s is Ready\n", o.name)
	return err
}
