// Package join is the command `atoll join`, the member's half of the handshake: it installs the
// agent in a cluster, or prints the manifest that does.
//
// Contract: with --push there is no agent to install: the member gets a ServiceAccount, and the
// hub its token and the address of the member's API. Otherwise, without --kubeconfig or --context,
// nothing is dialled and the manifest goes to standard output, so that no agent is installed in a
// cluster that happens to be current. It applies deploy/agent.yaml with the image and the join
// Secret filled in, and the parts of deploy/agent-allow.yaml that --allow names. A repeated apply
// changes nothing, and takes no right away. Before an agent runs, it creates the AgentPolicy of
// deploy/agent-policy.yaml, where the member has none. It never changes an AgentPolicy.
package join

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/deploy"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/jointoken"
	"atoll.dev/atoll/internal/trust"
)

// Names in deploy/agent.yaml.
const (
	agentName  = "atoll-agent"
	secretName = "atoll-agent-join"
)

type joinOptions struct {
	flags                           *client.ConnectionFlags
	name, hub, caHash, token, image string
	tokenFlags                      jointoken.TokenFlags // where token is read from
	balancerCA                      string               // file
	allow                           []string
	print, force                    bool
	policy                          bool
	timeout                         time.Duration
	push                            pushFlags
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &joinOptions{flags: flags}
	cmd := &cobra.Command{
		Use: `join NAME --hub HOST:PORT --ca-hash HASH --token-file FILE [--kubeconfig MEMBER]
  atoll join NAME --push --kubeconfig MEMBER [--hub-kubeconfig HUB]`,
		Short: "Install the agent in a member cluster, or print the manifest that does; or let the hub run it",
		Long: `Install the agent in a member cluster, or print the manifest that does; or let the
hub run it.

"atoll token create" on the hub prints this command with its values filled in.
With --kubeconfig or --context of the member the agent is installed there, else
the manifest is printed, for a user with the right to apply it. The hub's administrator then
lets the cluster in by "atoll accept NAME".

The agent makes its own key, which never leaves the member; the hub gets no
credentials of the member. By default the agent may apply workloads and what they need.
--allow lets it do more:

  crds           definitions of kinds
  rbac           roles and bindings, of rights that it has itself
  impersonate    let people in through the hub, under their own names
  all-kinds      objects of every kind
  cluster-admin  everything

Where the member has no AgentPolicy, one is created that keeps the hub out of namespaces
kube-*; --policy=false leaves it out. An AgentPolicy that exists is never changed.

For other kinds, add a ClusterRole labelled rbac.atoll.dev/aggregate-to-agent=true; for
less, print the manifest and edit it, or limit the agent in the member by an AgentPolicy.

With --push the hub runs the agent, for a member whose API it can reach. --kubeconfig
and --context are the member's then as well, and --hub-kubeconfig and --hub-context
choose the hub, because both are needed. The member gets a ServiceAccount of the same rights,
and the hub its token, in a Secret; to withdraw it, delete the Secrets labelled
atoll.dev/push in the member's namespace atoll-system. Repeated, it replaces the token,
and switches a cluster over whose agent runs in the member: that one's Deployment is
deleted once the hub may take over, and nothing that is placed is touched.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.hub, "hub", "", "HOST:PORT of the hub's gateway, several by commas for several hubs on one etcd (required without --push)")
	f.StringVar(&o.caHash, "ca-hash", "", "hash of the hub's CA, sha256:... (required without --push)")
	o.tokenFlags.AddTo(f, "Required without --push")
	f.StringVar(&o.balancerCA, "balancer-ca", "", "file with the CAs, in PEM, of a load balancer that terminates TLS before the hub")
	f.StringVar(&o.image, "image", "atoll:"+atoll.Version, "image of the agent; make images builds it")
	f.StringSliceVar(&o.allow, "allow", nil, "what the agent may do beyond workloads: crds, rbac, impersonate, all-kinds, cluster-admin; repeated, or by commas")
	f.BoolVar(&o.print, "print", false, "print the manifest even where the member's kubeconfig is set")
	f.BoolVar(&o.policy, "policy", true, "create an AgentPolicy that keeps the hub out of namespaces kube-*, where the member has none")
	f.BoolVar(&o.force, "force", false, "also take a cluster over that was to join another hub, or that the hub has under another name")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long to wait for the agent to run; 0 does not wait")
	o.push.addFlags(f)
	return cmd
}

func (o *joinOptions) run(cmd *cobra.Command) error {
	if !o.push.on {
		var err error
		if o.token, err = o.tokenFlags.Read(cmd.InOrStdin(), cmd.ErrOrStderr()); err != nil {
			return err
		}
	}
	if err := o.validate(); err != nil {
		return err
	}
	if o.push.on {
		return o.runPush(cmd.Context(), cmd.OutOrStdout())
	}
	objects, err := o.agentManifests()
	if err != nil {
		return err
	}
	if o.print || (o.flags.Kubeconfig == "" && o.flags.Context == "") {
		if err := o.printPolicyHint(cmd.ErrOrStderr()); err != nil {
			return err
		}
		return printManifest(cmd.OutOrStdout(), objects)
	}
	return o.installAgent(cmd.Context(), objects, cmd.OutOrStdout())
}

// installAgent applies the agent's objects in the member, and waits until the agent runs.
func (o *joinOptions) installAgent(ctx context.Context, objects []*unstructured.Unstructured, out io.Writer) error {
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	if err := o.checkJoinTarget(ctx, c); err != nil {
		return err
	}
	if err := o.installObjects(ctx, c, objects, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "the agent is installed at %s\n", c.Config.Host)
	if o.timeout > 0 {
		if err := o.waitAgentRunning(ctx, c); err != nil {
			return err
		}
		fmt.Fprintln(out, "the agent runs")
	}
	if err := o.printStandbyNote(ctx, c, out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "let it in on the hub, unless the token accepts by itself:\n\n  atoll accept %s\n", o.name)
	return err
}

func (o *joinOptions) validate() error {
	for _, problem := range validation.IsDNS1123Label(o.name) {
		return fmt.Errorf("the name %q cannot be a cluster's: %s", o.name, problem)
	}
	if err := o.checkModeFlags(); err != nil || o.push.on {
		return err
	}
	if _, err := trust.ParseToken(o.token); err != nil {
		return fmt.Errorf("--token: %w", err)
	}
	if !trust.IsValidKeyHash(o.caHash) {
		return fmt.Errorf("--ca-hash: %q is no CA hash; it looks like sha256:<64 hexadecimal digits>", o.caHash)
	}
	return nil
}

// agentManifests is deploy/agent.yaml with what this join needs, and what it allows beyond.
func (o *joinOptions) agentManifests() ([]*unstructured.Unstructured, error) {
	objects, err := decodeDeployFile("agent.yaml", deploy.Agent)
	if err != nil {
		return nil, err
	}
	balancerCA, err := o.readBalancerCAs()
	if err != nil {
		return nil, err
	}
	for _, u := range objects {
		switch u.GetKind() {
		case "Secret":
			u.Object["stringData"] = map[string]any{"name": o.name, "hub": o.hub, "caHash": o.caHash, "token": o.token, "balancerCA": balancerCA}
		case "Deployment":
			if err := o.setDeploymentImageAndToken(u); err != nil {
				return nil, fmt.Errorf("deploy/agent.yaml: %w", err)
			}
		}
	}
	allowed, err := o.allowFlagObjects()
	return append(objects, allowed...), err
}

// setDeploymentImageAndToken sets the image, and the ID of the token. A new token restarts the agent, which
// reads the join Secret when it starts.
func (o *joinOptions) setDeploymentImageAndToken(u *unstructured.Unstructured) error {
	containers, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return fmt.Errorf("want one container, have %d: %w", len(containers), err)
	}
	containers[0].(map[string]any)["image"] = o.image
	if err := unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		return err
	}
	token, err := trust.ParseToken(o.token)
	if err != nil {
		return nil // with --push there is none, and no Deployment is applied
	}
	return unstructured.SetNestedField(u.Object, token.ID, "spec", "template", "metadata", "annotations", deploy.AnnotationJoinToken)
}

// readBalancerCAs returns the CAs of load balancers, in PEM; empty if none were given and an
// earlier join left none.
func (o *joinOptions) readBalancerCAs() (string, error) {
	if o.balancerCA == "" {
		return "", nil
	}
	pem, err := os.ReadFile(o.balancerCA)
	switch {
	case err != nil:
		return "", fmt.Errorf("--balancer-ca: %w", err)
	case bytes.Contains(pem, []byte("PRIVATE KEY")):
		return "", fmt.Errorf("--balancer-ca: %s holds a private key, which only the balancer may have: give the certificates alone", o.balancerCA)
	}
	if _, err := trust.PoolFromPEM(pem); err != nil {
		return "", fmt.Errorf("--balancer-ca: %s holds no certificate in PEM", o.balancerCA)
	}
	return string(pem), nil
}

// allowFlagObjects returns the objects that let the agent do what --allow names.
func (o *joinOptions) allowFlagObjects() (out []*unstructured.Unstructured, err error) {
	all, err := decodeDeployFile("agent-allow.yaml", deploy.AgentAllow)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, u := range all {
		name := u.GetLabels()[deploy.LabelAllow]
		known = append(known, name)
		if slices.Contains(o.allow, name) {
			out = append(out, u)
		}
	}
	for _, name := range o.allow {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--allow: %q is none of %s", name, strings.Join(known, ", "))
		}
	}
	return out, nil
}

// decodeDeployFile decodes the objects of a file of the directory deploy.
func decodeDeployFile(file string, text []byte) (objects []*unstructured.Unstructured, err error) {
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		u := &unstructured.Unstructured{}
		switch err := documents.Decode(u); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("deploy/%s: %w", file, err)
		case u.GetKind() != "":
			objects = append(objects, u)
		}
	}
}

func printManifest(out io.Writer, objects []*unstructured.Unstructured) error {
	fmt.Fprintln(out, "# Apply this in the member: kubectl apply -f THIS-FILE")
	for _, u := range objects {
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

// checkJoinTarget refuses hubs, and clusters that were to join another hub.
func (o *joinOptions) checkJoinTarget(ctx context.Context, c *client.Connection) error {
	_, err := client.Get[corev1.ConfigMap](ctx, c, client.ConfigMaps, atoll.SystemNamespace, "hub-info")
	if err == nil {
		return fmt.Errorf("%s is a hub, where nothing runs: give the member's kubeconfig", c.Config.Host)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	old, err := client.Get[corev1.Secret](ctx, c, client.Secrets, atoll.SystemNamespace, secretName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if hash := string(old.Data["caHash"]); hash != o.caHash && !o.force {
		return fmt.Errorf("%s was to join another hub already (%s, CA %s): add --force to leave that one", c.Config.Host, old.Data["hub"], hash)
	}
	return nil
}

func apply(ctx context.Context, c *client.Connection, objects []*unstructured.Unstructured) error {
	kinds := c.ServedKinds()
	for _, u := range objects {
		mapping, err := kinds.MappingFor(ctx, u.GroupVersionKind())
		if err != nil {
			return c.ExplainError(err)
		}
		_, err = c.Dynamic.Resource(mapping.Resource).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "atoll-join", Force: true})
		if err != nil {
			return fmt.Errorf("install %s %s: %w", u.GetKind(), u.GetName(), c.ExplainError(err))
		}
	}
	return nil
}
