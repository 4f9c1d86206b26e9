package lab

import (
	"fmt"

	"github.com/cgoa-labs/labctl/cmd/internal/ui/verdict"
	"github.com/cgoa-labs/labctl/labs/check"
)

// words are what a report's page says around verdicts.
type words struct {
	language                                                         string
	Learner, Step, State, Took, Check, Wanted, Found, Hint, Evidence string
	Passed, Score, Basis, Image, StandIn, Unasked, Differs, Limits   string
}

// reportWords is every language that labs are written in.
var reportWords = []words{
	{
		language: "en", Learner: "Learner", Step: "Step", State: "State", Took: "Took", Check: "Looked at", Wanted: "Wanted", Found: "Found", Hint: "Hint", Evidence: "Evidence",
		Passed: "steps passed", Score: "Score", Basis: "What the verdict rests on", Image: "image", StandIn: "stand-in", Unasked: "Could not be checked, which says nothing about the work", Differs: "The kept report differs from what its checks say",
		Limits: "The verdict was made inside the learner's own guest, by the program above, at the time above. It says what was there then, not who put it there.",
	},
	{
		language: "ja", Learner: "受講者", Step: "ステップ", State: "状態", Took: "所要時間", Check: "確認した対象", Wanted: "期待", Found: "実際", Hint: "ヒント", Evidence: "根拠",
		Passed: "ステップが合格", Score: "得点", Basis: "判定の根拠となるもの", Image: "イメージ", StandIn: "代替品", Unasked: "確認できませんでした（作業の評価ではありません）", Differs: "保存された報告と、その確認結果が食い違っています",
		Limits: "この判定は、上記の時刻に、受講者自身のゲストの中で、上記のプログラムが行いました。その時に何があったかを示すもので、誰が置いたかは示しません。",
	},
	{
		language: "ko", Learner: "수강자", Step: "단계", State: "상태", Took: "걸린 시간", Check: "확인한 것", Wanted: "기대", Found: "실제", Hint: "힌트", Evidence: "근거",
		Passed: "단계 통과", Score: "점수", Basis: "판정의 바탕", Image: "이미지", StandIn: "대체품", Unasked: "확인하지 못했습니다(작업에 대한 평가가 아닙니다)", Differs: "보관된 보고서가 그 확인 결과와 다릅니다",
		Limits: "이 판정은 위의 시각에 수강자 자신의 게스트 안에서 위의 프로그램이 내렸습니다. 그때 무엇이 있었는지를 말하며, 누가 두었는지는 말하지 않습니다.",
	},
	{
		language: "zh", Learner: "学员", Step: "步骤", State: "状态", Took: "用时", Check: "检查对象", Wanted: "期望", Found: "实际", Hint: "提示", Evidence: "依据",
		Passed: "个步骤通过", Score: "得分", Basis: "判定所依据的内容", Image: "镜像", StandIn: "替代品", Unasked: "未能检查（这不代表对作业的评价）", Differs: "保存的报告与其检查结果不一致",
		Limits: "该判定由上述程序于上述时间在学员自己的客户机内作出。它说明当时有什么，不说明是谁放的。",
	},
}

// wordsIn are those of a language; English where it is none of them.
func wordsIn(language string) words {
	for _, w := range reportWords {
		if w.language == language {
			return w
		}
	}
	return reportWords[0]
}

// Of is a state's word.
func (w words) Of(s check.State) string { return verdict.In(w.language).State(s) }

// Seconds writes milliseconds as seconds.
func (words) Seconds(millis int64) string { return fmt.Sprintf("%.1f s", float64(millis)/1000) }
