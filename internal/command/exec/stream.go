package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	utilexec "k8s.io/utils/exec"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/command/pods"
)

// atOnce is in how many clusters --all runs at a time.
const atOnce = 20

// newExecutor returns the executor of a command in a container: by WebSocket, and by SPDY where that is not known, as
// kubectl does.
func newExecutor(c *client.Connection, pod *corev1.Pod, o *corev1.PodExecOptions) (remotecommand.Executor, error) {
	request := c.REST.Post().AbsPath("/api/v1/namespaces", pod.Namespace, "pods", pod.Name, "exec").Param("container", o.Container)
	for name, on := range map[string]bool{"stdin": o.Stdin, "stdout": o.Stdout, "stderr": o.Stderr, "tty": o.TTY} {
		if on {
			request.Param(name, "true")
		}
	}
	for _, word := range o.Command {
		request.Param("command", word)
	}
	at := request.URL()
	old, err := remotecommand.NewSPDYExecutor(c.Config, "POST", at)
	if err != nil {
		return nil, fmt.Errorf("reach pod %s: %w", pod.Name, err)
	}
	plain, err := remotecommand.NewWebSocketExecutor(c.Config, "GET", at.String())
	if err != nil {
		return nil, fmt.Errorf("reach pod %s: %w", pod.Name, err)
	}
	return remotecommand.NewFallbackExecutor(plain, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// runInContainer runs the command in the container of the pod, with this process's streams.
func (o *execOptions) runInContainer(ctx context.Context, c *client.Connection, a execRequest, pod *corev1.Pod, container string) error {
	e, err := newExecutor(c, pod, &corev1.PodExecOptions{Container: container, Command: a.command, Stdin: o.stdin, Stdout: true, Stderr: !o.tty, TTY: o.tty})
	if err != nil {
		return err
	}
	streams := remotecommand.StreamOptions{Stdout: a.out, Stderr: a.errs, Tty: o.tty}
	if o.stdin {
		streams.Stdin = a.in
	}
	if o.tty {
		streams.Stderr = nil
		in, ok := a.in.(*os.File)
		if !ok {
			return errors.New("the standard input is no terminal: leave out -t")
		}
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return fmt.Errorf("make the terminal pass keys as they are: %w", err)
		}
		defer func() { _ = term.Restore(int(in.Fd()), before) }() // nothing is to be done about it
		sizes := newTerminalSizeQueue(ctx, in)
		streams.TerminalSizeQueue = sizes
	}
	if err := e.StreamWithContext(ctx, streams); err != nil {
		return c.ExplainError(err)
	}
	return nil
}

// commandResult is how the command ended in a cluster.
type commandResult struct {
	cluster, pod string
	code         int
	// err: it did not run, or its result is unknown.
	err error
}

// newCommandResult returns the end of a command.
func newCommandResult(pod *corev1.Pod, err error) commandResult {
	out := commandResult{cluster: pods.ClusterOf(pod), pod: pods.NameInCluster(pod)}
	var exit utilexec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		out.code = exit.ExitStatus()
	default:
		out.err = err
	}
	return out
}

// runInAllClusters runs the command in one pod of each cluster.
func (o *execOptions) runInAllClusters(ctx context.Context, c *client.Connection, a execRequest, found []corev1.Pod) error {
	chosen, without := chooseReadyPodPerCluster(found)
	ends := make([]commandResult, len(chosen), len(chosen)+len(without))
	to := lines{out: output.NewLines(a.out), errs: output.NewLines(a.errs), palette: &output.Palette{On: o.color.IsEnabled(a.out)}}
	var running errgroup.Group
	running.SetLimit(atOnce)
	for i, pod := range chosen {
		running.Go(func() error {
			ends[i] = newCommandResult(pod, o.runPrefixed(ctx, c, a.command, pod, to))
			return nil
		})
	}
	_ = running.Wait() // none gives an error
	for _, name := range without {
		ends = append(ends, commandResult{cluster: name, err: errors.New("no pod is ready")})
	}
	return printCommandResults(a.errs, ends)
}

// lines are where what all clusters print goes.
type lines struct {
	out, errs *output.Lines
	palette   *output.Palette
}

// runPrefixed runs the command in a pod, with each line behind its prefix.
func (o *execOptions) runPrefixed(ctx context.Context, c *client.Connection, command []string, pod *corev1.Pod, to lines) error {
	container, err := pods.ChooseContainer(pod, o.container)
	if err != nil {
		return err
	}
	e, err := newExecutor(c, pod, &corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	prefix := to.palette.PaintText(pods.ClusterOf(pod), pods.LogLinePrefix(pod, container)) + " "
	stdout, stderr := to.out.PrefixWriter(prefix), to.errs.PrefixWriter(prefix)
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
	return errors.Join(err, stdout.Close(), stderr.Close())
}

// printCommandResults writes how it ended everywhere.
func printCommandResults(out io.Writer, ends []commandResult) error {
	fmt.Fprintln(out)
	table := output.NewTable(out, "CLUSTER", "POD", "EXIT", "REASON")
	bad := 0
	for _, e := range ends {
		exit, why := strconv.Itoa(e.code), ""
		if e.err != nil {
			exit, why = "", e.err.Error()
		}
		if e.err != nil || e.code != 0 {
			bad++
		}
		table.AddRow(e.cluster, e.pod, exit, why)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	if bad > 0 {
		return fmt.Errorf("in %d of %d clusters it did not end well", bad, len(ends))
	}
	return nil
}
