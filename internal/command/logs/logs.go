// Package logs is the command `atoll logs`: the logs of a workload's pods in all clusters, merged.
//
// Contract: lines of different containers are never mixed, and each has a prefix with its source.
// Logs that are read at once are in the order of their times, by the clusters' clocks. Followed
// logs are in the order of arrival. Unreadable logs are reported on standard error, and it is an
// error where nothing could be read. No more streams are open at once than the limit.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/command/pods"
)

const (
	// streamsMost are open at once, unless another number is set.
	streamsMost = 50
	// tailSelected lines of each container are shown of pods that a selector found, as
	// kubectl does.
	tailSelected = 10
)

type logsOptions struct {
	flags      *client.ConnectionFlags
	choice     client.ClusterChoice
	color      output.Color
	selector   string
	container  string
	all        bool
	follow     bool
	previous   bool
	timestamps bool
	noPrefix   bool
	tail       int64
	since      time.Duration
	maxStreams int
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &logsOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "logs TYPE/NAME | POD | -l SELECTOR",
		Short: "Show the logs of the pods of a workload in all clusters, merged",
		Long: `Show the logs of a workload's pods in all clusters, merged.

Each line begins with [cluster/pod container], in one colour for each cluster. Lines
are in the order of their times, as the clusters' clocks have them; with -f, in the
order in which they come. With -f, pods that come later are followed too, and a
disconnected cluster is awaited: its lines of that time come when it is back.`,
		Example: `  atoll logs deployment/web -n shop
  atoll logs -f --tail 10 deploy/web
  atoll logs sts/db --clusters tokyo-1,oslo-2 --since 1h
  atoll logs -l app=web --clusters env=prod --all-containers
  atoll logs web-5d9f.tokyo-1`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			argument := ""
			if len(args) > 0 {
				argument = args[0]
			}
			if !cmd.Flags().Changed("tail") && o.selector != "" {
				o.tail = tailSelected
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), argument)
		},
	}
	f := cmd.Flags()
	flags.AddNamespace(f)
	o.choice.AddTo(f)
	o.color.AddTo(f)
	f.StringVarP(&o.selector, "selector", "l", "", "label selector of pods, such as app=web")
	f.StringVarP(&o.container, "container", "c", "", "container (default: the pod's own default)")
	f.BoolVar(&o.all, "all-containers", false, "all containers of the pods")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with new lines, until ^C; a pod that was named, until it ends")
	f.BoolVarP(&o.previous, "previous", "p", false, "of the containers that ran before these")
	f.BoolVar(&o.timestamps, "timestamps", false, "begin each line with its time")
	f.BoolVar(&o.noPrefix, "no-prefix", false, "leave out [cluster/pod container]")
	f.Int64Var(&o.tail, "tail", -1, fmt.Sprintf("the last lines of each container only; -1: all (with -l: %d)", tailSelected))
	f.DurationVar(&o.since, "since", 0, "only lines of the last time, such as 5m")
	f.IntVar(&o.maxStreams, "max-log-requests", streamsMost, "containers that are read at once, at most")
	cmd.MarkFlagsMutuallyExclusive("container", "all-containers")
	cmd.MarkFlagsMutuallyExclusive("follow", "previous")
	return cmd
}

func (o *logsOptions) run(ctx context.Context, out, notes io.Writer, argument string) error {
	if o.tail < -1 || o.since < 0 || o.maxStreams < 1 {
		return errors.New("--tail is -1 or more, --since no less than 0, and --max-log-requests no less than 1")
	}
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	q, found, version, err := o.findPods(ctx, c, argument)
	if err != nil {
		return err
	}
	sources, err := o.selectSources(found)
	if err != nil {
		return err
	}
	if n := len(sources); n > o.maxStreams {
		return fmt.Errorf("%s: %d containers in %d clusters, and at most %d are read at once; narrow it with --clusters, -l or -c, or allow more with --max-log-requests %d",
			q.Subject, n, clustersOf(sources), o.maxStreams, n)
	}
	endless, err := c.WithoutTimeout()
	if err != nil {
		return err
	}
	r := &logReader{
		o: o, client: endless, lines: output.NewLines(out), notes: output.NewLines(notes),
		palette: &output.Palette{On: o.color.IsEnabled(out)},
	}
	if o.follow {
		return r.followPods(ctx, q, found, version)
	}
	return r.readOnce(ctx, sources)
}

// findPods lists the pods that the argument or the selector names. Without one, pods to come can be followed.
func (o *logsOptions) findPods(ctx context.Context, c *client.Connection, argument string) (q pods.PodQuery, found []corev1.Pod, version string, err error) {
	clusters, err := o.choice.ChosenNames(ctx, c)
	if err != nil {
		return q, nil, "", err
	}
	if q, err = pods.ResolvePodQuery(ctx, c, argument, o.selector, clusters); err != nil {
		return q, nil, "", err
	}
	found, version, err = q.List(ctx, c)
	if err == nil && len(found) == 0 && (!o.follow || q.One) {
		err = q.NotFoundError()
	}
	return q, found, version, err
}

// logSource is a container with a log.
type logSource struct {
	pod       *corev1.Pod
	container string
}

func (s logSource) clusterName() string { return pods.ClusterOf(s.pod) }

func (s logSource) linePrefix() string { return pods.LogLinePrefix(s.pod, s.container) }

func clustersOf(all []logSource) int {
	names := map[string]bool{}
	for _, s := range all {
		names[s.clusterName()] = true
	}
	return len(names)
}

// selectSources returns the sources of pods, in their order. It is an error where no pod has the container that was
// named; pods without it are left out.
func (o *logsOptions) selectSources(all []corev1.Pod) ([]logSource, error) {
	var out []logSource
	var none error
	for i := range all {
		if o.all {
			for _, name := range pods.ContainerNames(&all[i]) {
				out = append(out, logSource{&all[i], name})
			}
			continue
		}
		name, err := pods.ChooseContainer(&all[i], o.container)
		if err != nil {
			none = err
			continue
		}
		out = append(out, logSource{&all[i], name})
	}
	if len(out) == 0 {
		return nil, none
	}
	return out, nil
}
