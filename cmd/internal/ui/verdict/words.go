package verdict

import (
	"fmt"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Words are what is said around verdicts in one language. What a check found, and the names of states in JSON, are the same in all.
type Words struct {
	// Wanted and the others stand before what a check says.
	Wanted, Got, Trouble, Why, Hint string
	// Done, NotDone and Unasked say what is left to do on a step.
	Done, NotDone, Unasked string

	// Columns are the heads of tables about several learners: name, state, steps passed, next step, score, note. Step is one of a lab's.
	Columns Columns
	Step    string

	states                                                     map[check.State]string
	left, problem                                              string
	back, notBack, nothing, one, some, next, unasked, progress string
}

// Columns are the heads of tables about several learners.
type Columns struct{ Name, State, Passed, Next, Score, Note string }

var languages = map[string]Words{
	"en": {
		Wanted: "wanted", Got: "got", Trouble: "error", Why: "why", Hint: "hint", Done: "done", NotDone: "not done", Unasked: "could not be checked",
		Columns: Columns{"NAME", "STATE", "PASSED", "NEXT", "SCORE", "NOTE"}, Step: "step %d",
		states: map[check.State]string{check.Passed: "passed", check.Failed: "failed", check.Pending: "pending", check.Skipped: "skipped", check.Error: "error"},
		left:   "still there after the reset:", problem: "error:",
		back: "lab %s is back at its start (%s)", notBack: "lab %s is not back at its start: %s (%s)", nothing: "lab %s: %s (%s)", one: "lab %s, step %d: %s (%s)",
		some: "lab %s: %d of %d steps passed (%s)", next: "; next: step %d", unasked: "; step %d could not be checked, which says nothing about the work",
		progress: "%d of %d steps done",
	},
	"ja": {
		Wanted: "期待", Got: "実際", Trouble: "エラー", Why: "理由", Hint: "ヒント", Done: "完了", NotDone: "未完了", Unasked: "確認不能",
		Columns: Columns{"名前", "状態", "合格", "次", "得点", "備考"}, Step: "ステップ %d",
		states: map[check.State]string{check.Passed: "合格", check.Failed: "不合格", check.Pending: "進行中", check.Skipped: "省略", check.Error: "確認不能"},
		left:   "リセット後も残っているもの：", problem: "エラー：",
		back: "ラボ %s は開始状態に戻りました（%s）", notBack: "ラボ %s は開始状態に戻っていません：%s（%s）", nothing: "ラボ %s：%s（%s）", one: "ラボ %s、ステップ %d：%s（%s）",
		some: "ラボ %s：%[3]d ステップ中 %[2]d ステップが合格（%[4]s）", next: "。次はステップ %d", unasked: "。ステップ %d は確認できませんでした（作業の評価ではありません）",
		progress: "%[2]d ステップ中 %[1]d ステップが完了",
	},
	"ko": {
		Wanted: "기대", Got: "실제", Trouble: "오류", Why: "이유", Hint: "힌트", Done: "완료", NotDone: "미완료", Unasked: "확인 불가",
		Columns: Columns{"이름", "상태", "통과", "다음", "점수", "비고"}, Step: "단계 %d",
		states: map[check.State]string{check.Passed: "통과", check.Failed: "실패", check.Pending: "진행 중", check.Skipped: "건너뜀", check.Error: "확인 불가"},
		left:   "초기화 뒤에도 남은 것:", problem: "오류:",
		back: "실습 %s: 처음 상태로 돌아갔습니다(%s)", notBack: "실습 %s: 처음 상태로 돌아가지 않았습니다: %s(%s)", nothing: "실습 %s: %s(%s)", one: "실습 %s, 단계 %d: %s(%s)",
		some: "실습 %s: %[3]d단계 중 %[2]d단계 통과(%[4]s)", next: "; 다음: 단계 %d", unasked: "; 단계 %d: 확인하지 못했습니다(작업에 대한 평가가 아닙니다)",
		progress: "%[2]d단계 중 %[1]d단계 완료",
	},
	"zh": {
		Wanted: "期望", Got: "实际", Trouble: "错误", Why: "原因", Hint: "提示", Done: "已完成", NotDone: "未完成", Unasked: "无法检查",
		Columns: Columns{"名称", "状态", "通过", "下一步", "得分", "备注"}, Step: "步骤 %d",
		states: map[check.State]string{check.Passed: "通过", check.Failed: "未通过", check.Pending: "进行中", check.Skipped: "跳过", check.Error: "无法检查"},
		left:   "重置后仍然存在：", problem: "错误：",
		back: "实验 %s 已回到起点（%s）", notBack: "实验 %s 没有回到起点：%s（%s）", nothing: "实验 %s：%s（%s）", one: "实验 %s，步骤 %d：%s（%s）",
		some: "实验 %s：%[3]d 个步骤中通过 %[2]d 个（%[4]s）", next: "；下一步：步骤 %d", unasked: "；步骤 %d 未能检查，这不代表对作业的评价",
		progress: "%[2]d 个步骤中完成 %[1]d 个",
	},
}

// In are the words of a language; English where it is none of labs'.
func In(language string) Words {
	if w, ok := languages[language]; ok {
		return w
	}
	return languages["en"]
}

// State is a state's word.
func (w Words) State(s check.State) string {
	if word := w.states[s]; word != "" {
		return word
	}
	return string(s)
}

// Progress says how many of a lab's steps are done.
func (w Words) Progress(done, of int) string { return fmt.Sprintf(w.progress, done, of) }

// summary is a report in one line.
func (w Words) summary(r labs.Report, took string) string {
	switch {
	case r.Action == "reset" && r.State == check.Passed:
		return fmt.Sprintf(w.back, r.Lab, took)
	case r.Action == "reset":
		return fmt.Sprintf(w.notBack, r.Lab, w.State(r.State), took)
	case len(r.Steps) == 0:
		return fmt.Sprintf(w.nothing, r.Lab, w.State(r.State), took)
	case len(r.Steps) == 1:
		return fmt.Sprintf(w.one, r.Lab, r.Steps[0].Step, w.State(r.State), took)
	}
	s := fmt.Sprintf(w.some, r.Lab, r.Passed(), len(r.Steps), took)
	for _, step := range r.Steps {
		if step.State == check.Error {
			return s + fmt.Sprintf(w.unasked, step.Step)
		}
	}
	for _, step := range r.Steps {
		if step.State != check.Passed {
			return s + fmt.Sprintf(w.next, step.Step)
		}
	}
	return s
}
