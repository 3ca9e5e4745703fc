package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// runRolloutCommand runs the commands of scripts that are about rollouts.
func (s *scriptStage) runRolloutCommand(cmd string, args []string) {
	switch cmd {
	case "stage": // NAME CLUSTER,... | NAME label:K=V, and bounds: concurrency=N failures=N success=DURATION deadline=DURATION wait=DURATION approvers=N cel=EXPRESSION prometheus=COUNT,LIMIT webhook=HOST onFailure=ACTION
		s.statedRollout().Type = v1alpha1.RolloutStaged
		s.rollout.Stages = append(s.rollout.Stages, s.parseStage(args))
	case "auto": // SIZE,... and bounds, as of a stage
		s.statedRollout().Type = v1alpha1.RolloutStaged
		s.rollout.AutoStages, s.rollout.AutoStageOptions = s.parseAutoStages(args)
	case "most": // N clusters are chosen
		n, _ := strconv.Atoi(args[0])
		s.placement.MaxClusters = int32(n)
	case "fail": // CLUSTER... : the application failed there
		s.failed = map[string]schedule.FailedCluster{}
		for _, c := range args {
			s.failed[c] = schedule.FailedCluster{UID: s.clusters[c].UID, Reason: "it failed"}
		}
	case "purge": // MODE [SECONDS]
		s.baseInput.ApplicationFailover = &v1alpha1.ApplicationFailover{PurgeMode: v1alpha1.PurgeMode(args[0])}
		if len(args) > 1 {
			n, _ := strconv.Atoi(args[1])
			s.baseInput.ApplicationFailover.GracePeriodSeconds = new(int32(n))
		}
	case "turn": // a step of which nothing is shown
		s.advanceOnce()
	case "unavailable": // N
		b := intstr.Parse(args[0])
		s.statedRollout().MaxUnavailable = &b
	case "pause": // BY MESSAGE
		s.baseInput.Halt.Pause = &v1alpha1.RolloutPause{By: args[0], Message: args[1], Since: metav1.NewTime(s.now)}
	case "resume":
		s.baseInput.Halt.Pause, s.baseInput.ResumedAt = nil, s.now
	case "window": // Allow | Deny, "MINUTE-HOUR-DAY-MONTH-WEEKDAY" with "_" between, DURATION, ZONE and label K=V
		s.statedRollout().Windows = append(s.rollout.Windows, s.parseWindow(args))
	case "today": // TIME, in UTC
		at, err := time.Parse(time.RFC3339, args[0])
		if err != nil {
			s.t.Fatal(err)
		}
		s.gates.trueTime += at.Sub(s.now)
		s.now, s.began = at, at
	case "freeze": // BY REASON [DURATION]
		s.baseInput.Halt.Freeze = &v1alpha1.ChangeFreeze{By: args[0], Reason: args[1], Since: metav1.NewTime(s.now)}
		if len(args) > 2 {
			s.baseInput.Halt.Freeze.Until = &metav1.Time{Time: s.now.Add(s.parseDuration(args[2]))}
		}
	case "unfreeze":
		s.baseInput.Halt.Freeze = nil
	case "suspend", "end-suspension": // all | CLUSTER...
		s.setSuspension(cmd, args)
	case "depends", "independent", "other", "cycle", "dependent", "remove":
		s.runOrderCommand(cmd, args)
	case "disruptions", "pods", "free":
		s.runDisruptionCommand(cmd, args)
	case "all-at-once": // type: All without a bound is stated
		s.rollout, s.statesNone = nil, false
	case "unstated": // no rollout is stated
		s.rollout, s.statesNone = nil, true
	case "relabel": // NAME K=V
		k, v, _ := strings.Cut(args[1], "=")
		s.clusters[args[0]].Labels[k] = v
	case "clock": // BACK DURATION | AHEAD DURATION
		d := s.parseDuration(args[1])
		if args[0] == "back" {
			d = -d
		}
		s.now = s.now.Add(d)
	case "approve": // STAGE USER [REVISION]
		s.gates.addApproval(s, args)
	case "restart": // of the hub, or another hub leads
		s.gates.seen, s.gates.tallies = nil, nil
	case "on-failure": // STAGE ACTION: an edit of the policy
		i := slices.IndexFunc(s.rollout.Stages, func(r v1alpha1.RolloutStage) bool { return r.Name == args[0] })
		s.rollout.Stages[i].OnFailure = v1alpha1.FailureAction(args[1])
	case "measure": // GATE success|failure|nodata|wait TEXT
		s.addMeasurement(args)
	default:
		s.t.Fatalf("unknown command %s", cmd)
	}
}

// compileTerms returns the terms. Scripts state type: All where they state nothing.
func (s *scriptStage) compileTerms() *Terms {
	if s.rollout == nil && !s.statesNone {
		return nil
	}
	return CompileTerms(s.rollout).WithStageCut("ns", "bundle", s.cut)
}

func (s *scriptStage) parseWindow(args []string) v1alpha1.ChangeWindow {
	out := v1alpha1.ChangeWindow{
		Type: v1alpha1.ChangeWindowType(args[0]), Schedule: strings.ReplaceAll(args[1], "_", " "), Duration: metav1.Duration{Duration: s.parseDuration(args[2])},
	}
	for _, more := range args[3:] {
		if k, v, is := strings.Cut(more, "="); is {
			out.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
		} else {
			out.TimeZone = more
		}
	}
	return out
}

// parseAutoStages returns the sizes of automatic stages, and their bounds.
func (s *scriptStage) parseAutoStages(args []string) (sizes []intstr.IntOrString, all *v1alpha1.AutoStageOptions) {
	for size := range strings.SplitSeq(args[0], ",") {
		sizes = append(sizes, intstr.Parse(size))
	}
	one := s.parseStage(append([]string{"", ""}, args[1:]...))
	return sizes, &v1alpha1.AutoStageOptions{
		MaxConcurrency: one.MaxConcurrency, MaxFailures: one.MaxFailures, MinSuccessTime: one.MinSuccessTime, ProgressDeadline: one.ProgressDeadline,
		OnFailure: one.OnFailure, GatesBefore: one.GatesBefore,
	}
}

// storeCut stores the division into automatic stages that a step decided.
func (s *scriptStage) storeCut(out Output) {
	if out.StageCut != nil {
		s.cut = out.StageCut
	}
}

func (s *scriptStage) statedRollout() *v1alpha1.Rollout {
	if s.rollout == nil {
		s.rollout = &v1alpha1.Rollout{}
	}
	return s.rollout
}

func (s *scriptStage) parseStage(args []string) v1alpha1.RolloutStage {
	out := v1alpha1.RolloutStage{Name: args[0]}
	if label, is := strings.CutPrefix(args[1], "label:"); is {
		k, v, _ := strings.Cut(label, "=")
		out.Clusters.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	} else {
		out.Clusters.Names = strings.Split(args[1], ",")
	}
	for _, bound := range args[2:] {
		name, value, _ := strings.Cut(bound, "=")
		n := intstr.Parse(value)
		switch name {
		case "concurrency":
			out.MaxConcurrency = &n
		case "failures":
			out.MaxFailures = &n
		case "wait":
			out.GatesBefore = append(out.GatesBefore, v1alpha1.RolloutGate{Name: "time", Wait: &metav1.Duration{Duration: s.parseDuration(value)}})
		case "approvers", "approvers-after":
			g := v1alpha1.RolloutGate{Name: "person", Approval: &v1alpha1.ApprovalGate{Approvers: n.IntVal, ValidFor: &metav1.Duration{Duration: time.Hour}}}
			if name == "approvers" {
				out.GatesBefore = append(out.GatesBefore, g)
			} else {
				out.GatesAfter = append(out.GatesAfter, g)
			}
		case "cel":
			out.GatesBefore = append(out.GatesBefore, v1alpha1.RolloutGate{Name: "counts", CEL: value})
		case "prometheus", "prometheus-after":
			count, limit, _ := strings.Cut(value, ",")
			g := v1alpha1.RolloutGate{Name: "errors", Prometheus: &v1alpha1.PrometheusGate{
				Server: "https://prometheus", Query: "errors", SuccessCondition: "result < 0.5", Count: intstr.Parse(count).IntVal, FailureLimit: intstr.Parse(limit).IntVal,
			}}
			if name == "prometheus" {
				out.GatesBefore = append(out.GatesBefore, g)
			} else {
				out.GatesAfter = append(out.GatesAfter, g)
			}
		case "webhook":
			out.GatesBefore = append(out.GatesBefore, v1alpha1.RolloutGate{Name: "tests", Webhook: &v1alpha1.WebhookGate{URL: "https://" + value, SecretRef: v1alpha1.GateSecretRef{Name: "key"}}})
		case "onFailure":
			out.OnFailure = v1alpha1.FailureAction(value)
		case "success":
			out.MinSuccessTime = &metav1.Duration{Duration: s.parseDuration(value)}
		case "deadline":
			out.ProgressDeadline = &metav1.Duration{Duration: s.parseDuration(value)}
		}
	}
	return out
}

// addRolloutInput adds what a step knows of the rollout.
func (s *scriptStage) addRolloutInput(in *Input) {
	in.Terms, in.RevisionAt = s.compileTerms(), s.began
	in.NewClusters = map[string]Row{}
	in.Halt = NewHalt(&v1alpha1.BundleSpec{Pause: s.baseInput.Halt.Pause, Suspension: s.baseInput.Halt.Suspension, Source: v1alpha1.BundleSource{Kind: "PropagationPolicy", Name: "web"}}, s.baseInput.Halt.Freeze, s.now)
	in.Gates, in.Approvals = s.gates.readVerdicts(s.now), s.gates.approvals
	s.addRollbackInput(in)
	for c, of := range s.clusters {
		in.NewestClusterAt = max(in.NewestClusterAt, of.CreatedAt)
		row, has := in.Rows[c]
		row.Windows, row.Suspended = in.Terms.WindowsOf(of.Labels, of.TimeZone), in.Halt.HasSuspendedCluster(c)
		if row.Stage = in.Terms.StageOf(c, of.Labels, of.CreatedAt); has {
			in.Rows[c] = row
		} else {
			in.NewClusters[c] = Row{Stage: row.Stage, Windows: row.Windows, Suspended: row.Suspended, Online: s.online[c], UncertainUntil: s.uncertain[c]}
		}
	}
}

// addRollbackInput adds the stored rollback, and what rows get by it. A deletion of the target revision blocks it.
func (s *scriptStage) addRollbackInput(in *Input) {
	in.Rollback = s.rollback
	if in.Rollback == nil || in.Rollback.Revision != in.Revision {
		return
	}
	in.Previous = map[string]PreviousContent{}
	for c := range s.clusters {
		if row, has := in.Rows[c]; !has || row.Spec.Phase == atoll.RowPending {
			in.Previous[c] = PreviousContent{}
		} else if len(in.DeletedItems[row.Spec.PreviousRevision]) > 0 {
			in.Previous[c] = PreviousContent{Blocker: "the change deletes objects"}
		} else {
			in.Previous[c] = PreviousContent{}
		}
	}
}

// storeRollback stores the rollback that a step decided.
func (s *scriptStage) storeRollback(out Output) {
	if out.RollbackChanged {
		s.rollback = out.Rollback
	}
}

func (s *scriptStage) formatRollback() string {
	r := s.rollback
	if r == nil {
		return "  no rollback\n"
	}
	return fmt.Sprintf("  %s %s to %s: %s of %s, %s, %s %s\n", r.State, r.Revision, r.PreviousRevision, r.Cluster+r.Gate, r.Stage, r.Reason, s.now.Sub(r.Since.Time).Round(time.Second), r.Message)
}

// formatStages formats the progress of the last step.
func (s *scriptStage) formatStages() string {
	terms, out := s.compileTerms(), ""
	for i, n := range s.progress.Stages {
		out += fmt.Sprintf("  %s: %d clusters, %d updated, %d changing, %d failed, %d waiting, %d disconnected", terms.StageName(i), n.Clusters, n.Updated, n.Changing, n.Failed, n.Waiting, n.Disconnected)
		if n.Suspended > 0 {
			out += fmt.Sprintf(", %d suspended", n.Suspended)
		}
		out += "\n"
	}
	if w := s.stageWait; w.Stage >= 0 {
		out += fmt.Sprintf("  now %s %s\n", terms.StageName(w.Stage), w.Reason)
	} else if w.Reason == atoll.ReasonDispatchingSuspended {
		out += fmt.Sprintf("  %s\n", w.Reason)
	}
	return out
}
