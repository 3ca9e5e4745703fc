// Package exec is the command `atoll exec`: a command run in a container of a workload, in
// one cluster or in one pod of each.
//
// Contract: it prints which pod it took where it had a choice. The exit code of one command is
// the error's. With --all, the output of each goes out by whole lines behind the cluster's
// name. A summary has the result of each, and a failed one is an error.
// The terminal is as it was when the command ends.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/command/pods"
)

type execOptions struct {
	flags     *client.ConnectionFlags
	choice    client.ClusterChoice
	color     output.Color
	selector  string
	container string
	cluster   string
	all       bool
	stdin     bool
	tty       bool
	quiet     bool
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &execOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "exec TYPE/NAME | POD | -l SELECTOR [-it] -- COMMAND [ARG...]",
		Short: "Run a command in a container of a workload, in one cluster or in each",
		Long: `Run a command in a container of a workload, in one cluster or in each.

It runs in a pod that is ready, and prints its name. With --all it runs in one pod of
every cluster at once: each line of its output begins with [cluster/pod
container], and a summary at the end has the result of each.`,
		Example: `  atoll exec -it deploy/web --cluster tokyo-1 -- sh
  atoll exec web-5d9f.tokyo-1 -- cat /etc/hostname
  atoll exec deploy/web --all -- df -h /data
  atoll exec -l app=web --all --clusters env=prod -- date`,
		Args: func(cmd *cobra.Command, args []string) error {
			if _, _, err := splitArguments(cmd.ArgsLenAtDash(), args); err != nil {
				return err
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			argument, command, err := splitArguments(cmd.ArgsLenAtDash(), args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), execRequest{argument: argument, command: command, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr()})
		},
	}
	f := cmd.Flags()
	flags.AddNamespace(f)
	o.choice.AddTo(f)
	o.color.AddTo(f)
	f.StringVarP(&o.selector, "selector", "l", "", "label selector of pods, such as app=web")
	f.StringVarP(&o.container, "container", "c", "", "container (default: the pod's own default)")
	f.StringVar(&o.cluster, "cluster", "", "the cluster to run it in (default: the first by name with a pod that is ready)")
	f.BoolVar(&o.all, "all", false, "run it in one pod of every cluster")
	f.BoolVarP(&o.stdin, "stdin", "i", false, "pass what comes on the standard input")
	f.BoolVarP(&o.tty, "tty", "t", false, "the standard input is a terminal, and so is that of the command")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not print which pod was taken")
	for _, one := range []string{"stdin", "tty", "cluster"} {
		cmd.MarkFlagsMutuallyExclusive("all", one)
	}
	cmd.MarkFlagsMutuallyExclusive("cluster", "clusters")
	return cmd
}

// splitArguments splits the arguments at --: what to run it in, and the command.
func splitArguments(dash int, args []string) (argument string, command []string, err error) {
	if dash < 0 {
		return "", nil, errors.New("write the command behind --, as in: atoll exec deploy/web -- date")
	}
	if dash > 1 {
		return "", nil, fmt.Errorf("name one workload or pod before --, not %d", dash)
	}
	if dash == len(args) {
		return "", nil, errors.New("there is no command behind --")
	}
	if dash == 1 {
		argument = args[0]
	}
	return argument, args[dash:], nil
}

// execRequest is what to run, and where its streams go.
type execRequest struct {
	argument  string
	command   []string
	in        io.Reader
	out, errs io.Writer
}

func (o *execOptions) run(ctx context.Context, a execRequest) error {
	if err := o.checkTerminal(a.in); err != nil {
		return err
	}
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	q, found, err := o.findPods(ctx, c, a.argument)
	if err != nil {
		return err
	}
	endless, err := c.WithoutTimeout()
	if err != nil {
		return err
	}
	if o.all {
		return o.runInAllClusters(ctx, endless, a, found)
	}
	pod, err := chooseReadyPod(found, q.Subject)
	if err != nil {
		return err
	}
	container, err := pods.ChooseContainer(pod, o.container)
	if err != nil {
		return err
	}
	if !o.quiet && len(found) > 1 {
		fmt.Fprintf(a.errs, "in pod %s of cluster %s, of %d; another cluster is chosen with --cluster\n", pods.NameInCluster(pod), pods.ClusterOf(pod), len(found))
	}
	return o.runInContainer(ctx, endless, a, pod, container)
}

// checkTerminal refuses a terminal without an input that is one.
func (o *execOptions) checkTerminal(in io.Reader) error {
	switch {
	case !o.tty:
		return nil
	case !o.stdin:
		return errors.New("a terminal needs the standard input: give -it")
	case !output.IsTerminal(in):
		return errors.New("the standard input is no terminal: leave out -t")
	}
	return nil
}

// findPods lists the pods that the argument or the selector names, at least one.
func (o *execOptions) findPods(ctx context.Context, c *client.Connection, argument string) (q pods.PodQuery, found []corev1.Pod, err error) {
	clusters := []string{o.cluster}
	if o.cluster == "" {
		if clusters, err = o.choice.ChosenNames(ctx, c); err != nil {
			return q, nil, err
		}
	}
	if q, err = pods.ResolvePodQuery(ctx, c, argument, o.selector, clusters); err != nil {
		return q, nil, err
	}
	if found, _, err = q.List(ctx, c); err == nil && len(found) == 0 {
		err = q.NotFoundError()
	}
	return q, found, err
}

// chooseReadyPod returns the first pod that is ready, of pods sorted by cluster and name. A pod that is alone
// need not be.
func chooseReadyPod(found []corev1.Pod, of string) (*corev1.Pod, error) {
	if len(found) == 1 {
		return &found[0], nil
	}
	for i := range found {
		if pods.IsReady(&found[i]) {
			return &found[i], nil
		}
	}
	return nil, fmt.Errorf("none of the %d pods of %s is ready; name one of them to run it there all the same, such as %s", len(found), of, found[0].Name)
}

// chooseReadyPodPerCluster returns the pod of each cluster, and the clusters that have none that is ready.
func chooseReadyPodPerCluster(found []corev1.Pod) (chosen []*corev1.Pod, without []string) {
	var seen []string
	by := map[string]*corev1.Pod{}
	for i := range found {
		name := pods.ClusterOf(&found[i])
		if _, ok := by[name]; !ok {
			seen, by[name] = append(seen, name), nil
		}
		if by[name] == nil && pods.IsReady(&found[i]) {
			by[name] = &found[i]
		}
	}
	for _, name := range seen {
		if by[name] == nil {
			without = append(without, name)
		} else {
			chosen = append(chosen, by[name])
		}
	}
	return chosen, without
}
