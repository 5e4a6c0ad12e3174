"""An LSTM language model over one long text: the state is carried from window to window, the last window is shorter."""

import torch
import torch.nn.functional as F
from torch import nn

from toy import report

VOCABULARY, WIDTH, LAYERS = 50, 16, 2
BATCH_SIZE = 10
WINDOW = 7


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, dropout=0.1)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, state):
        out, state = self.lstm(self.embed(tokens), state)
        return self.head(out), state

    def first_state(self, batch_size):
        zeros = torch.zeros(LAYERS, batch_size, WIDTH)
        return zeros, zeros.clone()


torch.manual_seed(0)
text = torch.randint(VOCABULARY, (4096,))
columns = text[: len(text) // BATCH_SIZE * BATCH_SIZE].view(BATCH_SIZE, -1).t().contiguous()  # (time, batch)
model = LanguageModel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

for epoch in range(3):
    state = model.first_state(BATCH_SIZE)
    for start in range(0, len(columns) - 1, WINDOW):
        end = min(start + WINDOW, len(columns) - 1)
        state = tuple(part.detach() for part in state)
        logits, state = model(columns[start:end], state)
        loss = F.cross_entropy(logits.flatten(0, 1), columns[start + 1 : end + 1].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        report(loss)
