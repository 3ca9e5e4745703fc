package join

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// waitAgentRunning returns when the agent's Deployment is as it was applied and
// available, or returns what keeps its pod.
func (o *joinOptions) waitAgentRunning(ctx context.Context, c *client.Connection) error {
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, o.timeout, true, func(ctx context.Context) (bool, error) {
		d, err := client.Get[appsv1.Deployment](ctx, c, client.Deployments, atoll.SystemNamespace, agentName)
		if err != nil {
			return false, err
		}
		return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == 1 && d.Status.AvailableReplicas == 1, nil
	})
	if err == nil || ctx.Err() != nil || !wait.Interrupted(err) {
		return err
	}
	return fmt.Errorf("the agent is installed, but does not run within %s: %s", o.timeout, agentPodProblem(ctx, c))
}

// agentPodProblem is the trouble that the agent's pods report.
func agentPodProblem(ctx context.Context, c *client.Connection) string {
	pods, err := client.List[corev1.Pod](ctx, c, client.Pods, atoll.SystemNamespace, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + agentName})
	if err != nil {
		return err.Error()
	}
	if len(pods) == 0 {
		return fmt.Sprintf("it has no pod; see: kubectl describe deployment -n %s %s", atoll.SystemNamespace, agentName)
	}
	for _, pod := range pods {
		for _, s := range pod.Status.ContainerStatuses {
			switch {
			case s.State.Waiting != nil && s.State.Waiting.Message != "":
				return fmt.Sprintf("%s: %s", s.State.Waiting.Reason, s.State.Waiting.Message)
			case s.State.Terminated != nil:
				return fmt.Sprintf("it ended with code %d: %s", s.State.Terminated.ExitCode, s.State.Terminated.Message)
			}
		}
		for _, cond := range pod.Status.Conditions {
			if cond.Status == corev1.ConditionFalse && cond.Message != "" {
				return fmt.Sprintf("pod %s: %s: %s", pod.Name, cond.Reason, cond.Message)
			}
		}
	}
	return fmt.Sprintf("see: kubectl describe pod -n %s -l app.kubernetes.io/name=%s", atoll.SystemNamespace, agentName)
}
