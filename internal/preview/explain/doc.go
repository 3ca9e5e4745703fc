// Package explain shows people why an object is where it is: the policy that places it, the
// clusters with it and without it, and the override rule that set each field. Every row has its
// wait and the person or component that must act.
//
// Contract: a pure core. It only joins and words the results of the deciding functions:
// policymatch's decision, schedule's verdicts, rollout's next step and the manifest's provenance
// come in as values, made by the calls that act. No client, no clock, no goroutine. Arguments are
// not changed. The result holds nothing that the user may not see: values of Secrets never, and
// neither name nor message of items that Input.MayReadItem refuses.
package explain
