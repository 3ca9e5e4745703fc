// Package explain tells people why an object is where it is: who places it and why,
// which clusters got it and which did not, what every row waits for and who must
// act, and which override rule set which field.
//
// Contract: a pure core. It only joins and words what the deciding functions said:
// bind's decision, schedule's verdicts, rollout's next step and render's provenance
// come in as values, made by the same calls that act. No client, no clock, no
// goroutine. Arguments are not changed, and nothing of them that the asker may not
// see comes out: values of Secrets never, and of items that Input.Visible refuses
// neither name nor message.
package explain
